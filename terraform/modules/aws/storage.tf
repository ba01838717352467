# The bucket for what tasks bring and for copies of the dispatcher's state, and the disk that the state is on.

resource "aws_s3_bucket" "own" {
  bucket_prefix = "${substr(local.name, 0, 36)}-"
  force_destroy = true
  tags          = local.tags

  #checkov:skip=CKV_AWS_144: what is here can be made again, and copies of the state are on snapshots as well
  #checkov:skip=CKV_AWS_18: who reads it is in CloudTrail; a log of each access would cost more than the bucket
  #checkov:skip=CKV2_AWS_62: nobody waits for what is put here
}

resource "aws_s3_bucket_public_access_block" "own" {
  bucket                  = aws_s3_bucket.own.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "own" {
  bucket = aws_s3_bucket.own.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "own" {
  bucket = aws_s3_bucket.own.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.own.arn
    }
  }
}

resource "aws_s3_bucket_policy" "own" {
  bucket = aws_s3_bucket.own.id
  policy = templatefile("${path.module}/policies/bucket.json.tftpl", { bucket = aws_s3_bucket.own.arn })

  depends_on = [aws_s3_bucket_public_access_block.own]
}

resource "aws_s3_bucket_lifecycle_configuration" "own" {
  bucket = aws_s3_bucket.own.id

  # The dispatcher deletes its copies by itself, and keeps the last ones however old they are.
  rule {
    id     = "artifacts"
    status = "Enabled"

    filter {
      prefix = "artifacts/"
    }

    expiration {
      days = var.expire_days
    }
  }

  rule {
    id     = "remains"
    status = "Enabled"

    filter {
      prefix = ""
    }

    noncurrent_version_expiration {
      noncurrent_days = 7
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }

  depends_on = [aws_s3_bucket_versioning.own]
}

resource "aws_ebs_volume" "state" {
  #checkov:skip=CKV_AWS_189: state_key is for that; its snapshots may stay, and could not be read without a key that goes
  availability_zone = data.aws_subnet.control.availability_zone
  size              = var.state_gib
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.state_key
  tags              = merge(local.tags, { Name = "${local.name}-state", "cloud-dispatch-snapshots" = var.deployment })

  # A disk can't move, nor change its key, and another one in its place would be empty: the control VM's preconditions say so.
  lifecycle {
    ignore_changes = [availability_zone, kms_key_id]
  }
}

resource "aws_iam_role" "snapshots" {
  name               = "${local.name}-snapshots"
  description        = "Daily snapshots of the state of the deployment ${var.deployment}"
  assume_role_policy = templatefile(local.machine, { service = "dlm.amazonaws.com" })
  tags               = local.tags
}

resource "aws_iam_role_policy_attachment" "snapshots" {
  role       = aws_iam_role.snapshots.name
  policy_arn = "${local.arn}:iam::aws:policy/service-role/AWSDataLifecycleManagerServiceRole"
}

resource "aws_dlm_lifecycle_policy" "state" {
  description        = "Daily snapshots of the state of ${local.name}"
  execution_role_arn = aws_iam_role.snapshots.arn
  state              = "ENABLED"
  tags               = local.tags

  policy_details {
    resource_types = ["VOLUME"]
    target_tags    = { "cloud-dispatch-snapshots" = var.deployment }

    schedule {
      name      = "daily"
      copy_tags = true

      # What carries this tag is what the reaper deletes when everything is destroyed, unless it is told to keep snapshots.
      tags_to_add = { "cloud-dispatch-deployment" = var.deployment }

      create_rule {
        interval      = 24
        interval_unit = "HOURS"
        times         = ["03:00"]
      }

      retain_rule {
        count = var.snapshot_days
      }
    }
  }
}
