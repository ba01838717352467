# Three identities. The dispatcher's may launch what carries the deployment's tag, and end only that; the reaper's may
# end it and launch nothing; that of VMs may put files into the bucket under its own prefix, and nothing else.

locals {
  machine = "${path.module}/policies/machine.json.tftpl"

  # What a launch makes use of besides what it makes: by name as far as there is one.
  launch_with = concat(
    ["${local.arn}:ec2:${local.region}::image/*"],
    [for id in local.subnet_ids : "${local.arn}:ec2:${local.region}:${local.account}:subnet/${id}"],
    ["${local.arn}:ec2:${local.region}:${local.account}:security-group/${aws_security_group.worker.id}"],
  )
}

resource "aws_iam_role" "dispatcher" {
  name               = "${local.name}-dispatcher"
  description        = "The control VM of the deployment ${var.deployment}"
  assume_role_policy = templatefile(local.machine, { service = "ec2.${data.aws_partition.here.dns_suffix}" })
  tags               = local.tags
}

resource "aws_iam_role_policy" "dispatcher" {
  name = "launch-and-end"
  role = aws_iam_role.dispatcher.id

  policy = templatefile("${path.module}/policies/dispatcher.json.tftpl", {
    partition      = data.aws_partition.here.partition
    region         = local.region
    account        = local.account
    deployment     = var.deployment
    role           = aws_iam_role.worker.name
    instance_types = jsonencode(var.instance_types)
    launch_with    = jsonencode(sort(local.launch_with))
  })
}

resource "aws_iam_role_policy" "control" {
  name = "control-vm"
  role = aws_iam_role.dispatcher.id

  policy = templatefile("${path.module}/policies/control.json.tftpl", {
    bucket = aws_s3_bucket.own.arn
    key    = aws_kms_key.own.arn
  })
}

# What AWS signs of the role, by which another cloud takes it for the dispatcher: for those who are named, and for no longer
# than the driver asks. The conditions are AWS's documented ones for this call. Of several values "all" is also true of none:
# hence Null.
resource "aws_iam_role_policy" "tokens" {
  count  = length(var.token_audiences) > 0 ? 1 : 0
  name   = "tokens"
  role   = aws_iam_role.dispatcher.id
  policy = templatefile("${path.module}/policies/tokens.json.tftpl", { audiences = jsonencode(var.token_audiences) })
}

# A shell on the control VM without an open port: what Session Manager needs and no more. AWS's own policy for it,
# AmazonSSMManagedInstanceCore, lets whoever has the role read every parameter of the account.
resource "aws_iam_role_policy" "shell" {
  name   = "shell"
  role   = aws_iam_role.dispatcher.id
  policy = file("${path.module}/policies/shell.json")
}

resource "aws_iam_instance_profile" "dispatcher" {
  name = aws_iam_role.dispatcher.name
  role = aws_iam_role.dispatcher.name
  tags = local.tags
}

resource "aws_iam_role" "worker" {
  name               = "${local.name}-worker"
  description        = "VMs of the deployment ${var.deployment}"
  assume_role_policy = templatefile(local.machine, { service = "ec2.${data.aws_partition.here.dns_suffix}" })
  tags               = local.tags
}

resource "aws_iam_role_policy" "worker" {
  name = "artifacts"
  role = aws_iam_role.worker.id

  policy = templatefile("${path.module}/policies/worker.json.tftpl", {
    bucket = aws_s3_bucket.own.arn
    key    = aws_kms_key.own.arn
  })
}

resource "aws_iam_instance_profile" "worker" {
  name = aws_iam_role.worker.name
  role = aws_iam_role.worker.name
  tags = local.tags
}

resource "aws_iam_role" "reaper" {
  name               = "${local.name}-reaper"
  description        = "Ends VMs of the deployment ${var.deployment} at their hard ends"
  assume_role_policy = templatefile(local.machine, { service = "lambda.amazonaws.com" })
  tags               = local.tags
}

resource "aws_iam_role_policy" "reaper" {
  name = "end"
  role = aws_iam_role.reaper.id

  policy = templatefile("${path.module}/policies/reaper.json.tftpl", {
    partition  = data.aws_partition.here.partition
    region     = local.region
    account    = local.account
    deployment = var.deployment
    log_group  = aws_cloudwatch_log_group.reaper.arn
    sign       = aws_ssm_parameter.reaper.arn
  })
}
