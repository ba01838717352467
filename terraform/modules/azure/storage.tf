# The account for what tasks bring and, where the control VM is here, for copies of its state; and the disk that the state
# is on. Nobody has a key of the account: who may do what is said by roles.

resource "azurerm_storage_account" "own" {
  #checkov:skip=CKV_AZURE_59: its network is open and its data are not: there are no keys, and nothing in it is public
  #checkov:skip=CKV2_AZURE_33: the same; a private endpoint would cost more than what is in it
  #checkov:skip=CKV_AZURE_43: its name is made of letters and digits, 20 at most
  #checkov:skip=CKV_AZURE_33: nobody uses its queues
  #checkov:skip=CKV2_AZURE_1: Azure's own keys; bring one of yours where a rule asks for it
  #checkov:skip=CKV_AZURE_206: what is here can be made again, and not every region has zones
  name                            = local.short
  resource_group_name             = azurerm_resource_group.own.name
  location                        = var.region
  account_tier                    = "Standard"
  account_replication_type        = "LRS"
  min_tls_version                 = "TLS1_2"
  shared_access_key_enabled       = false
  default_to_oauth_authentication = true
  allow_nested_items_to_be_public = false
  local_user_enabled              = false
  tags                            = local.tags

  blob_properties {
    versioning_enabled = true

    delete_retention_policy {
      days = 7
    }

    container_delete_retention_policy {
      days = 7
    }
  }
}

resource "azurerm_storage_container" "own" {
  #checkov:skip=CKV2_AZURE_21: a log of each read would cost more than the container
  for_each              = toset(local.elsewhere ? ["artifacts"] : ["artifacts", "copies"])
  name                  = each.key
  storage_account_id    = azurerm_storage_account.own.id
  container_access_type = "private"
}

resource "azurerm_storage_management_policy" "own" {
  storage_account_id = azurerm_storage_account.own.id

  rule {
    name    = "artifacts"
    enabled = true

    filters {
      blob_types   = ["blockBlob"]
      prefix_match = ["artifacts/"]
    }

    actions {
      base_blob {
        delete_after_days_since_modification_greater_than = var.expire_days
      }
    }
  }

  # Copies of the state go when the dispatcher has newer ones: when it has none the last one stays.
  rule {
    name    = "what-was-replaced"
    enabled = true

    filters {
      blob_types = ["blockBlob"]
    }

    actions {
      version {
        delete_after_days_since_creation = 7
      }
    }
  }
}

resource "azurerm_managed_disk" "state" {
  #checkov:skip=CKV_AZURE_93: encrypted by Azure's own keys
  count                         = local.here
  name                          = "${local.name}-state"
  resource_group_name           = azurerm_resource_group.own.name
  location                      = var.region
  create_option                 = "Empty"
  storage_account_type          = "Premium_LRS"
  disk_size_gb                  = var.state_gib
  network_access_policy         = "DenyAll"
  public_network_access_enabled = false
  tags                          = local.tags
}

# Daily snapshots of that disk, in the same group: they go with it, where Azure lets a vault go without a delay.
locals {
  vaults = var.snapshot_days > 0 ? local.here : 0
}

resource "azurerm_data_protection_backup_vault" "state" {
  count               = local.vaults
  name                = local.name
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  datastore_type      = "VaultStore"
  redundancy          = "LocallyRedundant"
  soft_delete         = "Off"
  tags                = local.tags

  identity {
    type = "SystemAssigned"
  }
}

resource "azurerm_role_assignment" "snapshots" {
  for_each = local.vaults == 0 ? {} : {
    "Disk Backup Reader"        = azurerm_managed_disk.state[0].id
    "Disk Snapshot Contributor" = azurerm_resource_group.own.id
  }

  scope                = each.value
  role_definition_name = each.key
  principal_id         = azurerm_data_protection_backup_vault.state[0].identity[0].principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_data_protection_backup_policy_disk" "state" {
  count                           = local.vaults
  name                            = "daily"
  vault_id                        = azurerm_data_protection_backup_vault.state[0].id
  backup_repeating_time_intervals = ["R/2026-01-01T03:00:00+00:00/P1D"]
  default_retention_duration      = "P${var.snapshot_days}D"
}

resource "azurerm_data_protection_backup_instance_disk" "state" {
  count                        = local.vaults
  name                         = "state"
  location                     = var.region
  vault_id                     = azurerm_data_protection_backup_vault.state[0].id
  disk_id                      = azurerm_managed_disk.state[0].id
  snapshot_resource_group_name = azurerm_resource_group.own.name
  backup_policy_id             = azurerm_data_protection_backup_policy_disk.state[0].id

  depends_on = [azurerm_role_assignment.snapshots]
}
