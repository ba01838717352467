# The bucket for what tasks bring and, where the control VM is here, for the hourly copies of the dispatcher's state, of which the dispatcher keeps as
# many as it is told; and the disk that the state is on. Keys are Google's own: those of Cloud KMS can't be deleted for
# good, and destroying all of this shall leave nothing.

resource "random_id" "bucket" {
  byte_length = 4
}

resource "google_storage_bucket" "own" {
  name                        = "${local.name}-${random_id.bucket.hex}"
  location                    = local.region
  force_destroy               = true
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  labels                      = local.labels

  #checkov:skip=CKV_GCP_62: who reads it is in Cloud Audit Logs; a log of each access would cost more than the bucket

  versioning {
    enabled = true
  }

  # Versions are kept for a week: a second week of deleted objects would only be billed twice.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }

    condition {
      age            = var.expire_days
      matches_prefix = ["artifacts/"]
    }
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }

    condition {
      days_since_noncurrent_time = 7
      with_state                 = "ARCHIVED"
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }

    condition {
      age = 3
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_compute_disk" "state" {
  #checkov:skip=CKV_GCP_37: Google's own key encrypts it: one of yours would have to be given to every start
  count  = local.here
  name   = "${local.name}-state"
  zone   = local.zone
  type   = "pd-balanced"
  size   = var.state_gib
  labels = local.labels

  # A disk can't move, and another one in its place would be empty: the control VM's precondition says so.
  lifecycle {
    ignore_changes = [zone]
  }

  depends_on = [google_project_service.used]
}

resource "google_compute_resource_policy" "state" {
  count       = local.here
  name        = "${local.name}-state"
  description = "Daily snapshots of the state of the deployment ${var.deployment}"
  region      = local.region

  snapshot_schedule_policy {
    schedule {
      daily_schedule {
        days_in_cycle = 1
        start_time    = "03:00"
      }
    }

    retention_policy {
      max_retention_days    = var.snapshot_days
      on_source_disk_delete = "APPLY_RETENTION_POLICY"
    }

    snapshot_properties {
      labels            = local.labels
      storage_locations = [local.region]
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_compute_disk_resource_policy_attachment" "state" {
  count = local.here
  name  = google_compute_resource_policy.state[0].name
  disk  = google_compute_disk.state[0].name
  zone  = google_compute_disk.state[0].zone

  # It goes before the snapshots are deleted, so that none is made meanwhile.
  depends_on = [terraform_data.end_everything]
}
