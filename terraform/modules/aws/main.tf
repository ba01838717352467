# What is common to all of it: names, tags, and where the account is.

data "aws_caller_identity" "here" {}

data "aws_partition" "here" {}

data "aws_region" "here" {}

locals {
  name    = "cloud-dispatch-${var.deployment}"
  region  = data.aws_region.here.region
  account = data.aws_caller_identity.here.account_id
  port    = 7717
  tags    = merge(var.tags, { "cloud-dispatch-part-of" = var.deployment })
  arn     = "arn:${data.aws_partition.here.partition}"
}

# One key for what is kept here and goes with it: bucket, logs, topic, the secret, the control VM's own disk. Of what may
# outlive it, the state's disk and the database, snapshots can stay: for these a key that is not made here (state_key), or
# AWS's own ones, which nobody can delete.
resource "aws_kms_key" "own" {
  description             = "cloud-dispatch, deployment ${var.deployment}"
  enable_key_rotation     = true
  deletion_window_in_days = 7
  tags                    = local.tags

  policy = templatefile("${path.module}/policies/key.json.tftpl", {
    partition = data.aws_partition.here.partition
    account   = local.account
    region    = local.region
  })
}

resource "aws_kms_alias" "own" {
  name          = "alias/${local.name}"
  target_key_id = aws_kms_key.own.key_id
}
