# What is common to all of it: names, labels, where the project is, and the APIs that are asked.

data "google_project" "here" {}

locals {
  name    = "cloud-dispatch-${var.deployment}"
  project = data.google_project.here.project_id
  region  = var.regions[0]
  zone    = coalesce(var.zone, "${local.region}-b")
  port    = 7717

  # Whether the control VM is here, or in another cloud.
  elsewhere = var.dispatcher != null
  here      = local.elsewhere ? 0 : 1

  labels = merge(var.labels, { "cloud-dispatch-part-of" = var.deployment })

  # What VMs and their disks are called: a deployment's name has no two hyphens in a row, so that nobody else's begins so.
  prefix = "${var.deployment}--"

  # IAM conditions see names, not labels: of VMs and disks only those of the deployment may be changed. Of addresses IAM
  # sees neither name nor type (https://cloud.google.com/iam/docs/conditions-resource-attributes).
  only_own = templatefile("${path.module}/policies/only-own.cel.tftpl", { prefix = local.prefix })

  services = concat(
    [
      "artifactregistry", "cloudbilling", "cloudbuild", "cloudfunctions", "cloudresourcemanager", "cloudscheduler",
      "compute", "iam", "iamcredentials", "monitoring", "run", "storage",
    ],
    local.managed ? ["secretmanager", "servicenetworking", "sqladmin"] : [],
    var.billing_account == null ? [] : ["billingbudgets"],
    local.by_name ? ["dns"] : [],
    local.elsewhere ? ["sts"] : [],
  )
}

# Others in the project may need them too: they stay switched on when all of this is destroyed.
resource "google_project_service" "used" {
  for_each           = toset(local.services)
  service            = "${each.value}.googleapis.com"
  disable_on_destroy = false
}
