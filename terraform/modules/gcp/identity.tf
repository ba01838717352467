# Who may do what. The dispatcher's may launch, and change and end what is named after the deployment; the reaper's may
# end that and launch nothing; VMs may put files into the bucket under artifacts/, and nothing else. Two more call the
# reaper and build its function. Nobody has a key: each is given to a machine or a service.

locals {
  dispatcher = jsondecode(file("${path.module}/policies/dispatcher.json")).includedPermissions
  reaper     = jsondecode(file("${path.module}/policies/reaper.json")).includedPermissions
  sign       = jsondecode(file("${path.module}/policies/sign.json")).includedPermissions
  objects    = "projects/_/buckets/${google_storage_bucket.own.name}/objects"
}

resource "google_service_account" "control" {
  account_id   = "cd-${var.deployment}-control"
  display_name = "The control VM of the deployment ${var.deployment}"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "worker" {
  account_id   = "cd-${var.deployment}-worker"
  display_name = "VMs of the deployment ${var.deployment}"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "reaper" {
  account_id   = "cd-${var.deployment}-reaper"
  display_name = "Ends VMs of the deployment ${var.deployment} at their hard ends"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "caller" {
  account_id   = "cd-${var.deployment}-caller"
  display_name = "Calls the reaper of the deployment ${var.deployment}"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "builder" {
  account_id   = "cd-${var.deployment}-build"
  display_name = "Builds the reaper of the deployment ${var.deployment}"

  depends_on = [google_project_service.used]
}

# The driver's own document, and an address of each VM's own where it has one.
resource "google_project_iam_custom_role" "dispatcher" {
  role_id     = replace("cloud_dispatch_${var.deployment}_dispatcher", "-", "_")
  title       = "cloud-dispatch ${var.deployment}: dispatcher"
  description = "Launches, watches and ends the VMs of the deployment ${var.deployment}"
  permissions = concat(local.dispatcher, var.public_vms ? ["compute.subnetworks.useExternalIp"] : [])
}

resource "google_project_iam_member" "dispatcher" {
  project = local.project
  role    = google_project_iam_custom_role.dispatcher.id
  member  = google_service_account.control.member

  condition {
    title       = "only-${var.deployment}"
    description = "VMs and disks that are named after the deployment"
    expression  = local.only_own
  }
}

resource "google_service_account_iam_member" "gives_worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.control.member
}

resource "google_project_iam_custom_role" "reaper" {
  role_id     = replace("cloud_dispatch_${var.deployment}_reaper", "-", "_")
  title       = "cloud-dispatch ${var.deployment}: reaper"
  description = "Ends VMs of the deployment ${var.deployment} at their hard ends"
  permissions = local.reaper
}

resource "google_project_iam_member" "reaper" {
  project = local.project
  role    = google_project_iam_custom_role.reaper.id
  member  = google_service_account.reaper.member

  condition {
    title       = "only-${var.deployment}"
    description = "VMs and disks that are named after the deployment"
    expression  = local.only_own
  }
}

resource "google_project_iam_custom_role" "sign" {
  role_id     = replace("cloud_dispatch_${var.deployment}_sign", "-", "_")
  title       = "cloud-dispatch ${var.deployment}: sign"
  description = "The reaper of the deployment ${var.deployment} leaves its signs of life"
  permissions = local.sign
}

resource "google_storage_bucket_iam_member" "leaves_sign" {
  bucket = google_storage_bucket.own.name
  role   = google_project_iam_custom_role.sign.id
  member = google_service_account.reaper.member

  condition {
    title      = "sign"
    expression = "resource.name == \"${local.objects}/${google_storage_bucket_object.sign.name}\""
  }
}

resource "google_storage_bucket_iam_member" "hears_reaper" {
  bucket = google_storage_bucket.own.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.control.member

  condition {
    title      = "sign"
    expression = "resource.name == \"${local.objects}/${google_storage_bucket_object.sign.name}\""
  }
}

# Second attempts write the same names: with Google that takes the right to delete, which objectCreator does not have.
resource "google_storage_bucket_iam_member" "worker" {
  bucket = google_storage_bucket.own.name
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member

  condition {
    title      = "artifacts"
    expression = "resource.name.startsWith(\"${local.objects}/artifacts/\")"
  }
}

resource "google_storage_bucket_iam_member" "copies" {
  count  = local.here
  bucket = google_storage_bucket.own.name
  role   = "roles/storage.objectUser"
  member = google_service_account.control.member

  condition {
    title      = "copies"
    expression = "resource.name.startsWith(\"${local.objects}/copies/\")"
  }
}

resource "google_storage_bucket_iam_member" "finds_copies" {
  count  = local.here
  bucket = google_storage_bucket.own.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.control.member
}

resource "google_cloud_run_v2_service_iam_member" "calls_reaper" {
  for_each = merge({ caller = google_service_account.caller.member }, { for one in var.reaper_callers : one => one })
  location = google_cloudfunctions2_function.reaper.location
  name     = google_cloudfunctions2_function.reaper.name
  role     = "roles/run.invoker"
  member   = each.value
}

resource "google_project_iam_member" "build_logs" {
  project = local.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}

# Cloud Functions copies a function's source into a bucket of its own before it builds it.
resource "google_project_iam_member" "build_sources" {
  project = local.project
  role    = "roles/storage.objectAdmin"
  member  = google_service_account.builder.member

  condition {
    title      = "sources-of-functions"
    expression = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-\")"
  }
}

resource "google_storage_bucket_iam_member" "build_source" {
  bucket = google_storage_bucket.own.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member

  condition {
    title      = "function"
    expression = "resource.name.startsWith(\"${local.objects}/function/\")"
  }
}

resource "google_artifact_registry_repository_iam_member" "build_image" {
  location   = google_artifact_registry_repository.reaper.location
  repository = google_artifact_registry_repository.reaper.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}
