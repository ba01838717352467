# One control VM on AWS, which rents on AWS, Google Cloud and Azure. By what AWS signs of it its role is the dispatcher's
# account on Google Cloud and its identity on Azure: there is no key and no secret anywhere.

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.55, < 5.0"
    }
    google = {
      source  = "hashicorp/google"
      version = ">= 6.30, < 7.0"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

provider "google" {
  project = "lab-123456"
  region  = "us-central1"
}

# The subscription is ARM_SUBSCRIPTION_ID of the environment.
provider "azurerm" {
  # Nobody has keys of storage accounts.
  storage_use_azuread = true

  features {
    # `terraform destroy` ends the VMs that are still in their group.
    resource_group {
      prevent_deletion_if_contains_resources = false
    }

    storage {
      data_plane_available = false
    }

    application_insights {
      disable_generated_rule = true
    }

    log_analytics_workspace {
      permanently_delete_on_destroy = true
    }
  }
}

variable "aws_issuer" {
  description = "Who signs for the AWS account: aws iam get-outbound-web-identity-federation-info prints it."
  type        = string
}

locals {
  deployment = "lab"
  emails     = ["ops@example.org"]
}

module "google" {
  source = "../../modules/gcp"

  deployment   = local.deployment
  day_limit    = 50
  month_limit  = 500
  alarm_emails = local.emails
  dispatcher   = { aws_role = module.aws.dispatcher_role }
}

module "azure" {
  source = "../../modules/azure"

  deployment   = local.deployment
  region       = "eastus"
  day_limit    = 50
  month_limit  = 500
  alarm_emails = local.emails
  dispatcher   = { aws_role = module.aws.dispatcher_role, aws_issuer = var.aws_issuer }
}

module "aws" {
  source = "../../modules/aws"

  deployment   = local.deployment
  package      = "cloud-dispatch[aws,azure,bucket,gcp,postgres]==0.1.0"
  day_limit    = 50
  month_limit  = 500
  alarm_emails = local.emails

  agent_cidrs     = concat(module.google.egress_cidrs, module.azure.egress_cidrs)
  files           = merge(module.google.files, module.azure.files)
  pools           = join("\n", [module.google.profile, module.azure.profile, file("${path.module}/pools.toml")])
  token_audiences = ["api://AzureADTokenExchange"]
}

output "cloud_dispatch" {
  description = "What the module of the control VM tells of itself."
  value       = module.aws
}

output "google" {
  description = "What the module of Google Cloud tells of itself."
  value       = module.google
}

output "azure" {
  description = "What the module of Azure tells of itself."
  value       = module.azure
}
