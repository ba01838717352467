# The hand that ends VMs at their hard ends, whoever else is dead: the spending limits rest on it. Its identity is the only
# one besides the dispatcher's that may end VMs, and it looks every minute.
#
# It runs on a small plan that is always on. A plan by consumption would cost nothing and wake it by a controller of
# Azure's, which learns of the timer only by deployments that this provider can't make: the last hand must not hang on that.

locals {
  reaper_period_s = 60
  source          = "${path.module}/../../../cloud_dispatch"
  function        = "${path.module}/function"

  # What is called and what that imports, which is the core's own rule: a test holds this list against the imports.
  reaper_files = [
    "__init__.py",
    "domain/__init__.py",
    "domain/errors.py",
    "domain/ids.py",
    "domain/instance.py",
    "domain/money.py",
    "domain/offering.py",
    "domain/reaper.py",
    "domain/resources.py",
    "domain/shape.py",
    "domain/sign.py",
    "domain/tags.py",
    "domain/transition.py",
    "reapers/__init__.py",
    "reapers/azure.py",
    "reapers/rounds.py",
  ]
  function_files = [
    "host.json",
    "reaper/__init__.py",
    "reaper/function.json",
  ]

  reaper_contents = merge(
    { for name in local.reaper_files : "cloud_dispatch/${name}" => file("${local.source}/${name}") },
    { for name in local.function_files : name => file("${local.function}/${name}") },
  )
}

# Its name has its content: what is deployed is deployed anew when the name changes.
data "archive_file" "reaper" {
  type        = "zip"
  output_path = "${path.root}/.terraform/${local.name}-reaper-${substr(sha256(jsonencode(local.reaper_contents)), 0, 16)}.zip"

  dynamic "source" {
    for_each = local.reaper_contents

    content {
      filename = source.key
      content  = source.value
    }
  }
}

# What the function's host keeps for itself: whose turn a timer is.
resource "azurerm_storage_account" "reaper" {
  #checkov:skip=CKV_AZURE_59: its network is open and its data are not: there are no keys, and nothing in it is public
  #checkov:skip=CKV2_AZURE_33: the same; a private endpoint would cost more than what is in it
  #checkov:skip=CKV_AZURE_43: its name is made of letters and digits, 23 at most
  #checkov:skip=CKV_AZURE_33: nobody uses its queues
  #checkov:skip=CKV2_AZURE_1: Azure's own keys; one of yours would be one more thing that the last hand hangs on
  #checkov:skip=CKV_AZURE_206: nothing but the lock of one timer is in it
  name                            = "${local.short}run"
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
    delete_retention_policy {
      days = 7
    }
  }
}

resource "azurerm_role_assignment" "reaper_host" {
  scope                = azurerm_storage_account.reaper.id
  role_definition_name = "Storage Blob Data Owner"
  principal_id         = azurerm_user_assigned_identity.reaper.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_service_plan" "reaper" {
  #checkov:skip=CKV_AZURE_211: one look a minute needs the smallest there is
  #checkov:skip=CKV_AZURE_212: a second instance would wait for the first: a timer has one turn; the alarms say if it is not there
  #checkov:skip=CKV_AZURE_225: the same, and Azure starts it elsewhere when its machine is gone
  name                = "${local.short}-reaper"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  os_type             = "Linux"
  sku_name            = "B1"
  tags                = local.tags
}

resource "azurerm_linux_function_app" "reaper" {
  #checkov:skip=CKV_AZURE_221: Terraform puts the package there from where it runs; all else is refused below
  name                                           = "${local.short}-reaper"
  resource_group_name                            = azurerm_resource_group.own.name
  location                                       = var.region
  service_plan_id                                = azurerm_service_plan.reaper.id
  functions_extension_version                    = "~4"
  storage_account_name                           = azurerm_storage_account.reaper.name
  storage_uses_managed_identity                  = true
  builtin_logging_enabled                        = false
  https_only                                     = true
  ftp_publish_basic_authentication_enabled       = false
  webdeploy_publish_basic_authentication_enabled = true
  zip_deploy_file                                = data.archive_file.reaper.output_path
  tags                                           = local.tags

  identity {
    type         = "UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.reaper.id]
  }

  app_settings = {
    AzureWebJobsStorage__credential = "managedidentity"
    AzureWebJobsStorage__clientId   = azurerm_user_assigned_identity.reaper.client_id
    WEBSITE_RUN_FROM_PACKAGE        = "1"
    SCM_DO_BUILD_DURING_DEPLOYMENT  = "false"
    DEPLOYMENT                      = var.deployment
    GROUP                           = azurerm_resource_group.vms.id
    CLIENT                          = azurerm_user_assigned_identity.reaper.client_id
    SIGN                            = azurerm_user_assigned_identity.reaper.id
  }

  # It is called by its timer alone: the network reaches only the place that Terraform puts the package.
  site_config {
    always_on                              = true
    application_insights_connection_string = azurerm_application_insights.reaper.connection_string
    ftps_state                             = "Disabled"
    http2_enabled                          = true
    ip_restriction_default_action          = "Deny"
    scm_ip_restriction_default_action      = "Allow"
    minimum_tls_version                    = "1.2"
    scm_minimum_tls_version                = "1.2"

    application_stack {
      python_version = "3.12"
    }
  }

  depends_on = [
    azurerm_role_assignment.reaper,
    azurerm_role_assignment.reaper_host,
    azurerm_role_assignment.reaper_sign,
  ]
}
