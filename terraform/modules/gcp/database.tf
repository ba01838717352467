# The statestore in PostgreSQL of Cloud SQL, where the control VM's disk is not enough. It is reached inside the network
# alone, by TLS with its own certificate; its password is in Secret Manager (and, as all that Terraform makes, in its state).

locals {
  managed = var.database == "managed"
  peering = local.managed && local.makes_network ? 1 : 0

  store = join("\n", [
    for number, one in google_sql_database_instance.store : templatefile("${path.module}/templates/store.toml.tftpl", {
      address = one.private_ip_address
      secret  = google_secret_manager_secret.store[number].id
    })
  ])

  database_files = { for one in google_sql_database_instance.store : "database.pem" => one.server_ca_cert[0].cert }
}

resource "google_compute_global_address" "services" {
  count         = local.peering
  name          = "${local.name}-services"
  description   = "Where Google's services are inside the network of ${local.name}"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
  network       = local.network
  labels        = local.labels
}

# Google releases it hours after the database is gone: it goes with the network instead.
resource "google_service_networking_connection" "services" {
  count                   = local.peering
  network                 = local.network
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = google_compute_global_address.services[*].name
  deletion_policy         = "ABANDON"

  depends_on = [google_project_service.used]
}

resource "google_sql_database_instance" "store" {
  #checkov:skip=CKV_GCP_6: ssl_mode refuses what is not encrypted, and the password says who it is
  #checkov:skip=CKV_GCP_79: a major version is changed by hand, with the dispatcher that was tested with it
  #checkov:skip=CKV_GCP_108: there is one client, whose address stays
  #checkov:skip=CKV_GCP_110: there is one client, and the dispatcher keeps a record of its own of who asked it for what
  #checkov:skip=CKV_GCP_111: statements hold what tasks are given
  #checkov:skip=CKV2_GCP_13: there are thousands of statements a minute; how long they take is among the dispatcher's metrics
  count               = local.managed ? 1 : 0
  name                = "${local.name}-${random_id.bucket.hex}"
  region              = local.region
  database_version    = "POSTGRES_17"
  deletion_protection = var.database_protected

  settings {
    tier                        = var.database_tier
    edition                     = "ENTERPRISE"
    availability_type           = var.database_available ? "REGIONAL" : "ZONAL"
    disk_type                   = "PD_SSD"
    disk_size                   = 10
    disk_autoresize             = true
    deletion_protection_enabled = var.database_protected
    user_labels                 = local.labels

    database_flags {
      name  = "log_checkpoints"
      value = "on"
    }

    database_flags {
      name  = "log_connections"
      value = "on"
    }

    database_flags {
      name  = "log_disconnections"
      value = "on"
    }

    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    database_flags {
      name  = "log_min_error_statement"
      value = "error"
    }

    ip_configuration {
      ipv4_enabled    = false
      private_network = local.network
      ssl_mode        = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = 7
      start_time                     = "03:00"

      backup_retention_settings {
        retained_backups = var.snapshot_days
      }
    }

    location_preference {
      zone = local.zone
    }
  }

  depends_on = [google_service_networking_connection.services, google_project_service.used]
}

resource "google_sql_database" "store" {
  count    = local.managed ? 1 : 0
  name     = "dispatcher"
  instance = google_sql_database_instance.store[0].name

  # With the instance: what holds the whole state is not dropped beneath it.
  deletion_policy = "ABANDON"
}

resource "random_password" "store" {
  count   = local.managed ? 1 : 0
  length  = 40
  special = false
}

resource "google_sql_user" "store" {
  count    = local.managed ? 1 : 0
  name     = "dispatcher"
  instance = google_sql_database_instance.store[0].name
  password = random_password.store[0].result

  # With the database: PostgreSQL lets nobody go who owns something.
  deletion_policy = "ABANDON"
}

resource "google_secret_manager_secret" "store" {
  count     = local.managed ? 1 : 0
  secret_id = "${local.name}-database"
  labels    = local.labels

  replication {
    auto {}
  }

  depends_on = [google_project_service.used]
}

resource "google_secret_manager_secret_version" "store" {
  count       = local.managed ? 1 : 0
  secret      = google_secret_manager_secret.store[0].id
  secret_data = random_password.store[0].result
}

resource "google_secret_manager_secret_iam_member" "control" {
  count     = local.managed ? 1 : 0
  secret_id = google_secret_manager_secret.store[0].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.control.member
}
