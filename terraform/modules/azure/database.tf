# The statestore as PostgreSQL that Azure runs, where that is asked for: reached from the network alone, with a password
# that the dispatcher reads from a vault when it connects.

locals {
  managed = var.database == "managed" ? 1 : 0

  database_subnet_id = concat(azurerm_subnet.database[*].id, [var.database_subnet_id])[0]

  # Lines of the dispatcher's configuration; without them the statestore is SQLite on the state's disk.
  store = join("\n", flatten([for server in azurerm_postgresql_flexible_server.own : [
    "[store]",
    "url = \"postgresql://${server.administrator_login}@${server.fqdn}:5432/${azurerm_postgresql_flexible_server_database.own[0].name}?sslmode=verify-full&sslrootcert=/etc/ssl/certs/ca-certificates.crt\"",
    "password = \"azure-secret:${azurerm_key_vault_secret.database[0].versionless_id}\"",
  ]]))
}

resource "azurerm_subnet" "database" {
  #checkov:skip=CKV2_AZURE_31: Azure's own servers are in it, and whoever reaches them needs the password
  count                = local.makes_network ? local.managed : 0
  name                 = "database"
  resource_group_name  = azurerm_resource_group.own.name
  virtual_network_name = azurerm_virtual_network.own[0].name
  address_prefixes     = [cidrsubnet(var.cidr, 8, 254)]

  delegation {
    name = "postgresql"

    service_delegation {
      name    = "Microsoft.DBforPostgreSQL/flexibleServers"
      actions = ["Microsoft.Network/virtualNetworks/subnets/join/action"]
    }
  }
}

resource "azurerm_private_dns_zone" "database" {
  count               = local.managed
  name                = "${local.short}.private.postgres.database.azure.com"
  resource_group_name = azurerm_resource_group.own.name
  tags                = local.tags
}

resource "azurerm_private_dns_zone_virtual_network_link" "database" {
  count                 = local.managed
  name                  = "database"
  private_dns_zone_name = azurerm_private_dns_zone.database[0].name
  resource_group_name   = azurerm_resource_group.own.name
  virtual_network_id    = local.network_id
}

# It stands in Terraform's state too.
resource "random_password" "database" {
  count       = local.managed
  length      = 40
  special     = false
  min_lower   = 1
  min_upper   = 1
  min_numeric = 1
}

resource "azurerm_postgresql_flexible_server" "own" {
  #checkov:skip=CKV_AZURE_136: copies in another region are for what can't be made again
  #checkov:skip=CKV2_AZURE_57: it is in the network itself, which is Azure's other way of not being public
  count                         = local.managed
  name                          = local.short
  resource_group_name           = azurerm_resource_group.own.name
  location                      = var.region
  version                       = "16"
  sku_name                      = var.database_sku
  storage_mb                    = 32768
  administrator_login           = "dispatcher"
  administrator_password        = random_password.database[0].result
  backup_retention_days         = max(7, min(35, var.snapshot_days))
  public_network_access_enabled = false
  delegated_subnet_id           = local.database_subnet_id
  private_dns_zone_id           = azurerm_private_dns_zone.database[0].id
  tags                          = local.tags

  lifecycle {
    ignore_changes = [zone]

    precondition {
      condition     = local.database_subnet_id != null
      error_message = "PostgreSQL in an existing network needs a subnet of its own, delegated to it: database_subnet_id."
    }
  }

  depends_on = [azurerm_private_dns_zone_virtual_network_link.database]
}

resource "azurerm_postgresql_flexible_server_database" "own" {
  count     = local.managed
  name      = "cloud_dispatch"
  server_id = azurerm_postgresql_flexible_server.own[0].id
  charset   = "UTF8"
  collation = "en_US.utf8"
}

resource "azurerm_key_vault" "own" {
  #checkov:skip=CKV_AZURE_109: who reads it is said by roles; Terraform writes it from where it runs
  #checkov:skip=CKV_AZURE_189: the same
  #checkov:skip=CKV2_AZURE_32: the same
  #checkov:skip=CKV_AZURE_110: nothing is left when the deployment is destroyed; the password is of no use then
  #checkov:skip=CKV_AZURE_42: the same
  count                      = local.managed
  name                       = local.short
  resource_group_name        = azurerm_resource_group.own.name
  location                   = var.region
  tenant_id                  = data.azurerm_client_config.here.tenant_id
  sku_name                   = "standard"
  rbac_authorization_enabled = true
  soft_delete_retention_days = 7
  tags                       = local.tags
}

resource "azurerm_role_assignment" "secrets_writer" {
  count                = local.managed
  scope                = azurerm_key_vault.own[0].id
  role_definition_name = "Key Vault Secrets Officer"
  principal_id         = data.azurerm_client_config.here.object_id
}

resource "azurerm_key_vault_secret" "database" {
  #checkov:skip=CKV_AZURE_41: it is good until it is changed: a day on which nothing works is no protection
  count        = local.managed
  name         = "database-password"
  value        = random_password.database[0].result
  content_type = "password"
  key_vault_id = azurerm_key_vault.own[0].id
  tags         = local.tags

  depends_on = [azurerm_role_assignment.secrets_writer]
}

resource "azurerm_role_assignment" "dispatcher_secret" {
  count                = local.managed
  scope                = azurerm_key_vault_secret.database[0].resource_versionless_id
  role_definition_name = "Key Vault Secrets User"
  principal_id         = local.principal
  principal_type       = "ServicePrincipal"
}
