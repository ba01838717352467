# The control VM. Its state is on a disk of its own, and its address stays, so that another one can take its place.

locals {
  host  = local.by_name ? concat(var.names, [""])[0] : join("", google_compute_address.control[*].address)
  names = concat(google_compute_address.control[*].address, google_compute_address.public[*].address, var.names)

  config = templatefile("${path.module}/templates/config.toml.tftpl", {
    deployment = var.deployment
    port       = local.port
    host       = local.host
    names      = jsonencode(local.names)
    store      = local.store
    copies     = "gs://${google_storage_bucket.own.name}/copies"
    copied     = local.managed ? "keys" : "everything"
    profile    = local.profile
    pools      = var.pools
  })

  # What a dispatcher is told of this, wherever it is.
  profile = templatefile("${path.module}/templates/profile.toml.tftpl", {
    credentials     = local.elsewhere ? "credentials_file = \"/etc/cloud-dispatch/google.json\"" : ""
    project         = local.project
    regions         = jsonencode(var.regions)
    instance_types  = jsonencode(var.instance_types)
    subnets         = join(", ", [for region, one in local.subnets : "${region} = ${jsonencode(one)}"])
    service_account = google_service_account.worker.email
    name_prefix     = local.prefix
    public_vms      = var.public_vms
    reaper_period   = "${local.reaper_period_s}s"
    reaper_sign     = local.reaper_sign
    max_instances   = var.max_instances
    day_limit       = var.day_limit
    month_limit     = var.month_limit
    profile         = var.profile
  })

  # What lies in /etc/cloud-dispatch. Nothing of it is a secret: user data are read by whoever may look at the machine.
  files = merge(
    { "config.toml" = local.config },
    local.database_files,
    var.restore_from == "" ? {} : { "restore-from" = var.restore_from },
  )

  user_data = templatefile("${path.module}/../shared/control.yaml.tftpl", {
    package = var.package
    files   = base64encode(jsonencode(local.files))
    devices = "/dev/disk/by-id/google-state"
  })
}

resource "google_compute_address" "control" {
  count        = local.here
  name         = "${local.name}-control"
  description  = "The control VM of ${local.name}: its address stays"
  region       = local.region
  address_type = "INTERNAL"
  subnetwork   = local.subnets[local.region]
  labels       = local.labels
}

resource "google_compute_address" "public" {
  count       = local.makes_network && length(local.outside) > 0 ? 1 : 0
  name        = "${local.name}-public"
  description = "Where operators and VMs of other clouds reach the control VM of ${local.name}"
  region      = local.region
  labels      = local.labels

  depends_on = [google_project_service.used]
}

# A machine reads its user data once: other ones are another machine.
resource "terraform_data" "user_data" {
  count = local.here
  input = sha256(local.user_data)
}

resource "google_compute_instance" "control" {
  #checkov:skip=CKV_GCP_38: Google's own key encrypts its disks: one of yours would have to be given to every start
  #checkov:skip=CKV_GCP_40: it has a public address only where operator_cidrs or agent_cidrs say who comes from outside
  count                     = local.here
  name                      = "${local.name}-control"
  description               = "The control VM of the deployment ${var.deployment}"
  zone                      = local.zone
  machine_type              = var.control_type
  can_ip_forward            = false
  allow_stopping_for_update = true
  labels                    = local.labels

  boot_disk {
    initialize_params {
      image  = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
      type   = "pd-balanced"
      size   = 16
      labels = local.labels
    }
  }

  attached_disk {
    source      = google_compute_disk.state[0].id
    device_name = "state"
  }

  network_interface {
    subnetwork = local.subnets[local.region]
    network_ip = google_compute_address.control[0].address

    dynamic "access_config" {
      for_each = google_compute_address.public

      content {
        nat_ip = access_config.value.address
      }
    }
  }

  service_account {
    email  = google_service_account.control.email
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    user-data              = base64gzip(local.user_data)
    user-data-encoding     = "base64"
    block-project-ssh-keys = "TRUE"
    enable-oslogin         = "TRUE"
    serial-port-enable     = "FALSE"
  }

  lifecycle {
    replace_triggered_by = [terraform_data.user_data]

    precondition {
      condition     = local.host != ""
      error_message = "VMs of other clouds (agent_cidrs) need a public name of the control VM: the first of names."
    }

    precondition {
      condition     = startswith(local.zone, "${local.region}-")
      error_message = "The control VM's zone is in the first of regions."
    }

    precondition {
      condition     = google_compute_disk.state[0].zone == local.zone
      error_message = "The state is on a disk in another zone than the control VM's, and can't move. To begin on a new disk there, set restore_from, and apply with -replace for google_compute_disk.state[0]."
    }
  }

  # Whoever ends everything comes after it: nothing is launched while the deployment is destroyed.
  depends_on = [
    terraform_data.end_everything,
    google_project_iam_member.dispatcher,
    google_service_account_iam_member.gives_worker,
    google_storage_bucket_iam_member.worker,
    google_storage_bucket_iam_member.copies,
    google_storage_bucket_iam_member.finds_copies,
    google_compute_router_nat.own,
    google_compute_firewall.closed,
    google_compute_firewall.agents,
    google_dns_record_set.control,
    google_sql_database.store,
    google_sql_user.store,
    google_secret_manager_secret_version.store,
    google_secret_manager_secret_iam_member.control,
  ]
}
