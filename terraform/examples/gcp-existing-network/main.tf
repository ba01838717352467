# A network that there is, with subnets that have a way out: a Cloud NAT, or addresses of the VMs' own (public_vms).

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

data "google_compute_subnetwork" "batch" {
  name   = "batch"
  region = "us-central1"
}

module "cloud_dispatch" {
  source = "../../modules/gcp"

  deployment   = "lab"
  network      = "projects/lab-123456/global/networks/batch"
  subnets      = { us-central1 = data.google_compute_subnetwork.batch.id }
  day_limit    = 50
  month_limit  = 500
  alarm_emails = ["ops@example.org"]

  operator_cidrs = ["10.20.0.0/16"]
  names          = ["dispatch.lab.example.org"]
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
