# What is common to all of it: names, tags, and two resource groups. Azure's roles know no tags of VMs, so that rented VMs
# are in a group of their own, which bounds who may end what.

data "azurerm_client_config" "here" {}

locals {
  name            = "cloud-dispatch-${var.deployment}"
  port            = 7717
  subscription_id = data.azurerm_client_config.here.subscription_id
  subscription    = "/subscriptions/${local.subscription_id}"
  tags            = merge(var.tags, { "cloud-dispatch-part-of" = var.deployment })

  # Whether the control VM is here, or in another cloud; and whether it is there by what AWS signs of it. Which way it is
  # told by the issuer: the role is made by the same plan, which can't count by it.
  elsewhere = var.dispatcher != null
  here      = local.elsewhere ? 0 : 1
  federated = try(var.dispatcher.aws_issuer, null) != null

  # Accounts, vaults and servers have names that are the only ones of their kind in the world.
  unique = substr(sha256("${local.subscription}/${var.deployment}"), 0, 10)
  short  = "cd${substr(replace(var.deployment, "-", ""), 0, 8)}${local.unique}"
}

resource "azurerm_resource_group" "own" {
  name     = local.name
  location = var.region
  tags     = local.tags

  lifecycle {
    precondition {
      condition     = !local.elsewhere || var.database == "embedded"
      error_message = "The database is where the dispatcher is: with a dispatcher elsewhere there is none to make."
    }

    precondition {
      condition     = !local.elsewhere || length(concat(var.operator_cidrs, var.agent_cidrs, var.names)) == 0
      error_message = "Who reaches the dispatcher, and by which name (operator_cidrs, agent_cidrs, names), is said where it is."
    }
  }
}

# Nothing but rented VMs and what is theirs. When it is destroyed everything in it is ended: after the control VM, so that
# nobody launches anew, and before the network that they are in.
resource "azurerm_resource_group" "vms" {
  name     = "${local.name}-vms"
  location = var.region
  tags     = local.tags

  timeouts {
    delete = "90m"
  }

  depends_on = [
    azurerm_subnet_network_security_group_association.workers,
    azurerm_network_security_rule.nobody_works,
    azurerm_subnet_nat_gateway_association.workers,
    azurerm_nat_gateway_public_ip_association.out,
    azurerm_user_assigned_identity.worker,
  ]
}
