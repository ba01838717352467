# The hand that ends VMs at their hard ends, whoever else is dead: the spending limits rest on it. It is the only identity
# besides the dispatcher's that may end VMs, and it is called every minute.

locals {
  reaper_period_s = 60
  source          = "${path.module}/../../../cloud_dispatch"

  # The function and what it imports, which is the core's own rule: a test holds this list against the imports.
  reaper_files = [
    "__init__.py",
    "domain/__init__.py",
    "domain/errors.py",
    "domain/ids.py",
    "domain/instance.py",
    "domain/money.py",
    "domain/offering.py",
    "domain/reaper.py",
    "domain/resources.py",
    "domain/shape.py",
    "domain/sign.py",
    "domain/tags.py",
    "domain/transition.py",
    "reapers/__init__.py",
    "reapers/aws.py",
    "reapers/rounds.py",
  ]
}

data "archive_file" "reaper" {
  type        = "zip"
  output_path = "${path.root}/.terraform/${local.name}-reaper.zip"

  dynamic "source" {
    for_each = local.reaper_files

    content {
      filename = "cloud_dispatch/${source.value}"
      content  = file("${local.source}/${source.value}")
    }
  }
}

resource "aws_cloudwatch_log_group" "reaper" {
  name              = "/aws/lambda/${local.name}-reaper"
  retention_in_days = 365
  kms_key_id        = aws_kms_key.own.arn
  tags              = local.tags
}

resource "aws_lambda_function" "reaper" {
  function_name    = "${local.name}-reaper"
  description      = "Ends VMs of the deployment ${var.deployment} at their hard ends"
  role             = aws_iam_role.reaper.arn
  runtime          = "python3.13"
  architectures    = ["arm64"]
  handler          = "cloud_dispatch.reapers.aws.handler"
  filename         = data.archive_file.reaper.output_path
  source_code_hash = data.archive_file.reaper.output_base64sha256
  timeout          = 600
  memory_size      = 256
  tags             = local.tags

  #checkov:skip=CKV_AWS_115: the last hand must not wait for a share of its own, which small accounts can't give
  #checkov:skip=CKV_AWS_173: the deployment's name is no secret, and the last hand must not hang on a key
  #checkov:skip=CKV_AWS_50: a round is one line of its log
  #checkov:skip=CKV_AWS_117: it speaks to EC2's API alone; a network of its own could cut the last hand off
  #checkov:skip=CKV_AWS_116: a round that fails is repeated in a minute, and told by the alarm: nothing is in its event
  #checkov:skip=CKV_AWS_272: its code comes with the module, and who may change it may change the signature too
  environment {
    variables = {
      DEPLOYMENT     = var.deployment
      SIGN           = aws_ssm_parameter.reaper.name
      KEEP_SNAPSHOTS = var.keep_snapshots ? "yes" : ""
    }
  }

  depends_on = [aws_iam_role_policy.reaper]
}

# Where each round that went well leaves a sign of life, and the dispatcher looks for it.
resource "aws_ssm_parameter" "reaper" {
  #checkov:skip=CKV2_AWS_34: when it looked last is no secret, and the last hand must not hang on a key
  #checkov:skip=CKV_AWS_337: the same
  name        = "/${local.name}/reaper"
  description = "The last sign of life of the reaper of the deployment ${var.deployment}"
  type        = "String"
  value       = "none"
  tags        = local.tags

  lifecycle {
    ignore_changes = [value]
  }
}

resource "aws_cloudwatch_event_rule" "reaper" {
  name                = "${local.name}-reaper"
  description         = "Every minute"
  schedule_expression = "rate(1 minute)"
  tags                = local.tags
}

resource "aws_cloudwatch_event_target" "reaper" {
  rule = aws_cloudwatch_event_rule.reaper.name
  arn  = aws_lambda_function.reaper.arn
}

resource "aws_lambda_permission" "reaper" {
  statement_id  = "every-minute"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.reaper.function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.reaper.arn
}

# `terraform destroy` calls it once more, and waits: everything of the deployment is ended before its network goes. The
# control VM is gone by then, so that nobody launches anew.
resource "aws_lambda_invocation" "end_everything" {
  function_name   = aws_lambda_function.reaper.function_name
  lifecycle_scope = "CRUD"
  input           = jsonencode({ reason = "terraform" })

  depends_on = [
    aws_iam_role_policy.reaper,
    aws_security_group.worker,
    aws_subnet.own,
    aws_route_table_association.own,
    aws_iam_instance_profile.worker,
  ]
}
