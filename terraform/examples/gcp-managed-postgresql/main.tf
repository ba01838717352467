# The statestore in PostgreSQL of Cloud SQL, VMs in two regions, operators that come from outside, and the billing
# account's own alarm, which is asked for in the project's name.

terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.30, < 7.0"
    }
  }
}

provider "google" {
  project               = "lab-123456"
  region                = "europe-west4"
  billing_project       = "lab-123456"
  user_project_override = true
}

module "cloud_dispatch" {
  source = "../../modules/gcp"

  deployment      = "lab"
  regions         = ["europe-west4", "us-central1"]
  instance_types  = ["n2-standard-*", "c2-standard-*"]
  max_instances   = 200
  day_limit       = 500
  month_limit     = 5000
  billing_account = "012345-6789AB-CDEF01"
  alarm_emails    = ["ops@example.org"]
  operator_cidrs  = ["192.0.2.0/24"]

  control_type       = "e2-standard-2"
  database           = "managed"
  database_available = true
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
