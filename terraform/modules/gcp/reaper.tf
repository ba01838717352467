# The hand that ends VMs at their hard ends, whoever else is dead: the spending limits rest on it. Compute Engine itself
# deletes VMs that run at the end of their maxRunDuration; this is the second hand, and the only one for those that have
# stopped. It is the only identity besides the dispatcher's that may end VMs, and it is called every minute.

locals {
  reaper_period_s  = 60
  reaper_timeout_s = 540
  reaper_sign      = "gs://${google_storage_bucket.own.name}/${google_storage_bucket_object.sign.name}"
  source           = "${path.module}/../../../cloud_dispatch"

  # The function and what it imports, which is the core's own rule: a test holds this list against the imports.
  reaper_files = [
    "__init__.py",
    "domain/__init__.py",
    "domain/errors.py",
    "domain/ids.py",
    "domain/instance.py",
    "domain/labels.py",
    "domain/money.py",
    "domain/offering.py",
    "domain/reaper.py",
    "domain/resources.py",
    "domain/shape.py",
    "domain/sign.py",
    "domain/tags.py",
    "domain/transition.py",
    "reapers/__init__.py",
    "reapers/gcp.py",
    "reapers/rounds.py",
  ]
}

data "archive_file" "reaper" {
  type        = "zip"
  output_path = "${path.root}/.terraform/${local.name}-reaper.zip"

  dynamic "source" {
    for_each = merge(
      { for one in local.reaper_files : "cloud_dispatch/${one}" => "${local.source}/${one}" },
      { for one in ["main.py", "requirements.txt"] : one => "${path.module}/function/${one}" },
    )

    content {
      filename = source.key
      content  = file(source.value)
    }
  }
}

resource "google_storage_bucket_object" "reaper" {
  name   = "function/${data.archive_file.reaper.output_sha256}.zip"
  bucket = google_storage_bucket.own.name
  source = data.archive_file.reaper.output_path
}

# Its metadata take the sign of life that each round leaves which went well, and the dispatcher looks for it.
resource "google_storage_bucket_object" "sign" {
  name    = "reaper/sign"
  bucket  = google_storage_bucket.own.name
  content = "The last sign of life of the reaper is in the metadata of this object.\n"

  lifecycle {
    ignore_changes = [metadata]
  }
}

resource "google_artifact_registry_repository" "reaper" {
  #checkov:skip=CKV_GCP_84: it holds the reaper's image, which is no secret; keys of Cloud KMS can't be deleted for good
  location      = local.region
  repository_id = "${local.name}-reaper"
  description   = "The image of the reaper of the deployment ${var.deployment}"
  format        = "DOCKER"
  labels        = local.labels

  depends_on = [google_project_service.used]
}

resource "google_cloudfunctions2_function" "reaper" {
  #checkov:skip=CKV_GCP_124: terraform destroy calls it from the operator's machine; IAM refuses who may not
  name        = "${local.name}-reaper"
  description = "Ends VMs of the deployment ${var.deployment} at their hard ends"
  location    = local.region
  labels      = local.labels

  build_config {
    runtime           = "python313"
    entry_point       = "reap"
    service_account   = google_service_account.builder.id
    docker_repository = google_artifact_registry_repository.reaper.id

    source {
      storage_source {
        bucket = google_storage_bucket_object.reaper.bucket
        object = google_storage_bucket_object.reaper.name
      }
    }
  }

  service_config {
    service_account_email            = google_service_account.reaper.email
    available_memory                 = "512M"
    timeout_seconds                  = local.reaper_timeout_s
    min_instance_count               = 0
    max_instance_count               = 3
    max_instance_request_concurrency = 1
    ingress_settings                 = "ALLOW_ALL"
    all_traffic_on_latest_revision   = true

    environment_variables = {
      DEPLOYMENT = var.deployment
      PROJECT    = local.project
      TIMEOUT_S  = local.reaper_timeout_s
      SIGN       = local.reaper_sign
    }
  }

  depends_on = [
    google_project_iam_member.reaper,
    google_storage_bucket_iam_member.leaves_sign,
    google_project_iam_member.build_logs,
    google_project_iam_member.build_sources,
    google_storage_bucket_iam_member.build_source,
    google_artifact_registry_repository_iam_member.build_image,
  ]
}

resource "google_cloud_scheduler_job" "reaper" {
  name             = "${local.name}-reaper"
  description      = "Every minute"
  region           = local.region
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "${local.reaper_timeout_s}s"

  retry_config {
    retry_count = 0
  }

  http_target {
    http_method = "POST"
    uri         = google_cloudfunctions2_function.reaper.service_config[0].uri

    oidc_token {
      service_account_email = google_service_account.caller.email
      audience              = google_cloudfunctions2_function.reaper.service_config[0].uri
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.calls_reaper]
}

# `terraform destroy` calls it once more, and waits: everything of the deployment is ended before its network goes. The
# control VM is gone by then, so that nobody launches anew. The operator's machine needs gcloud, signed in as somebody who
# may call it, and curl; the snapshots of the state are deleted with the operator's own right.
resource "terraform_data" "end_everything" {
  input = {
    url       = google_cloudfunctions2_function.reaper.service_config[0].uri
    project   = local.project
    snapshots = var.keep_snapshots ? "" : "labels.cloud-dispatch-part-of=${var.deployment}"
  }

  provisioner "local-exec" {
    when = destroy

    environment = {
      URL       = self.input.url
      PROJECT   = self.input.project
      SNAPSHOTS = self.input.snapshots
    }

    command = <<-EOT
      set -eu
      token=$(gcloud auth print-identity-token --audiences="$URL" 2>/dev/null) || token=$(gcloud auth print-identity-token)
      printf 'Authorization: Bearer %s\n' "$token" | curl --silent --show-error --fail --max-time 600 --header @- \
        --header 'Content-Type: application/json' --data '{"everything": true}' "$URL"
      [ -n "$SNAPSHOTS" ] || exit 0
      names=$(gcloud compute snapshots list --project="$PROJECT" --filter="$SNAPSHOTS" --format='value(name)')
      [ -z "$names" ] || gcloud compute snapshots delete $names --project="$PROJECT" --quiet
    EOT
  }

  depends_on = [
    google_project_iam_member.reaper,
    google_cloud_run_v2_service_iam_member.calls_reaper,
    google_service_account.worker,
    google_compute_subnetwork.own,
    google_compute_router_nat.own,
    google_compute_firewall.closed,
  ]
}
