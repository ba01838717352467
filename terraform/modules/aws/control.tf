# The control VM. Its state is on a disk of its own, and its address stays, so that another one can take its place.

data "aws_subnet" "control" {
  id = local.subnet_ids[0]
}

data "aws_ssm_parameter" "image" {
  name = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
}

locals {
  # The public name of its address is the private one inside the VPC. VMs are told it where some come from elsewhere.
  public = concat(aws_eip.control[*].public_dns, var.names, [""])[0]
  host   = length(var.agent_cidrs) > 0 ? local.public : aws_network_interface.control.private_ip
  names = concat(
    [aws_network_interface.control.private_ip],
    aws_eip.control[*].public_ip,
    aws_eip.control[*].public_dns,
    var.names,
  )

  config = templatefile("${path.module}/templates/config.toml.tftpl", {
    deployment           = var.deployment
    port                 = local.port
    host                 = local.host
    names                = jsonencode(local.names)
    region               = local.region
    account              = local.account
    instance_types       = jsonencode(var.instance_types)
    subnets              = jsonencode(local.subnet_ids)
    security_group       = aws_security_group.worker.id
    instance_profile     = aws_iam_instance_profile.worker.name
    identity_certificate = var.identity_certificate == "" ? "" : "/etc/cloud-dispatch/identity.pem"
    reaper_period        = "${local.reaper_period_s}s"
    reaper_sign          = aws_ssm_parameter.reaper.name
    max_instances        = var.max_instances
    day_limit            = var.day_limit
    month_limit          = var.month_limit
    profile              = var.profile
    store                = local.store
    bucket               = aws_s3_bucket.own.id
    copies               = local.managed ? "keys" : "everything"
    pools                = var.pools
  })

  # What lies in /etc/cloud-dispatch. Nothing of it is a secret: user data are read by whoever may look at the machine.
  files = merge(
    var.files,
    { "config.toml" = local.config },
    var.identity_certificate == "" ? {} : { "identity.pem" = var.identity_certificate },
    var.database_certificate == "" ? {} : { "database.pem" = var.database_certificate },
    var.restore_from == "" ? {} : { "restore-from" = var.restore_from },
  )

  user_data = templatefile("${path.module}/../shared/control.yaml.tftpl", {
    package = var.package
    files   = base64encode(jsonencode(local.files))
    devices = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${replace(aws_ebs_volume.state.id, "-", "")} /dev/xvdf"
  })
}

resource "aws_network_interface" "control" {
  subnet_id       = data.aws_subnet.control.id
  security_groups = [aws_security_group.control.id]
  description     = "The control VM of ${local.name}: its address stays"
  tags            = merge(local.tags, { Name = "${local.name}-control" })
}

resource "aws_eip" "control" {
  #checkov:skip=CKV2_AWS_19: it is attached, by the network interface
  count             = local.makes_vpc ? 1 : 0
  domain            = "vpc"
  network_interface = aws_network_interface.control.id
  tags              = merge(local.tags, { Name = "${local.name}-control" })

  depends_on = [aws_internet_gateway.own]
}

resource "aws_instance" "control" {
  ami                         = data.aws_ssm_parameter.image.insecure_value
  instance_type               = var.control_type
  iam_instance_profile        = aws_iam_instance_profile.dispatcher.name
  user_data_base64            = base64gzip(local.user_data)
  user_data_replace_on_change = true
  ebs_optimized               = true
  monitoring                  = true
  tags                        = merge(local.tags, { Name = "${local.name}-control" })

  primary_network_interface {
    network_interface_id = aws_network_interface.control.id
  }

  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = aws_kms_key.own.arn
    volume_type = "gp3"
    volume_size = 16
  }

  lifecycle {
    ignore_changes = [ami]

    precondition {
      condition     = local.host != ""
      error_message = "VMs of other clouds (agent_cidrs) need a public name: in an existing VPC, the first of names."
    }

    precondition {
      condition     = aws_ebs_volume.state.availability_zone == data.aws_subnet.control.availability_zone
      error_message = "The state is on a disk in another zone than the first of subnet_ids, and can't move. To begin on a new disk there, set restore_from, and apply with -replace for aws_ebs_volume.state."
    }

    precondition {
      condition     = var.state_key == null || aws_ebs_volume.state.kms_key_id == var.state_key
      error_message = "The state is on a disk with another key than state_key, and a disk keeps its key. To begin on a new disk, set restore_from, and apply with -replace for aws_ebs_volume.state."
    }
  }

  # Whoever ends everything comes after it: nothing is launched while the deployment is destroyed.
  depends_on = [
    aws_lambda_invocation.end_everything,
    aws_iam_role_policy.dispatcher,
    aws_iam_role_policy.control,
    aws_iam_role_policy.database,
    aws_iam_role_policy.tokens,
    aws_iam_role_policy.worker,
  ]
}

resource "aws_volume_attachment" "state" {
  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.state.id
  instance_id                    = aws_instance.control.id
  stop_instance_before_detaching = true
}
