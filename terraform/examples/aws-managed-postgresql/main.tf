# The statestore in PostgreSQL by RDS: the control VM can be lost with its disk, and another one goes on.

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

module "cloud_dispatch" {
  source = "../../modules/aws"

  deployment   = "lab"
  day_limit    = 50
  month_limit  = 500
  alarm_emails = ["ops@example.org"]

  # Of the region: https://truststore.pki.rds.amazonaws.com/us-east-1/us-east-1-bundle.pem
  database             = "managed"
  database_certificate = fileexists("${path.module}/us-east-1-bundle.pem") ? file("${path.module}/us-east-1-bundle.pem") : ""
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
