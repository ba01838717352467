# In a VPC that is there already, with a way out to the internet, reached by operators from its own networks.

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

  vpc_id         = "vpc-0123456789abcdef0"
  subnet_ids     = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  operator_cidrs = ["10.20.0.0/16"]
  names          = ["dispatch.example.org"]
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
