# The smallest: one control VM, its own network, the statestore on its disk.

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
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
