# The smallest: one control VM, its own network, the statestore on its disk.

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
  project = "lab-123456"
  region  = "us-central1"
}

module "cloud_dispatch" {
  source = "../../modules/gcp"

  deployment   = "lab"
  day_limit    = 50
  month_limit  = 500
  alarm_emails = ["ops@example.org"]
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
