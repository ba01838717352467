# The smallest: one control VM, its own network, the statestore on its disk.

terraform {
  required_version = ">= 1.5"

  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.55, < 5.0"
    }
  }
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

variable "ssh_public_key" {
  description = "A public key for the control VM: Azure makes no VM without one."
  type        = string
}

module "cloud_dispatch" {
  source = "../../modules/azure"

  deployment     = "lab"
  region         = "westeurope"
  day_limit      = 50
  month_limit    = 500
  alarm_emails   = ["ops@example.org"]
  ssh_public_key = var.ssh_public_key
}

output "cloud_dispatch" {
  description = "What the module tells of itself."
  value       = module.cloud_dispatch
}
