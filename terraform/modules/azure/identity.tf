# Three identities. The dispatcher's may launch and end VMs in their group, and use what they need; the reaper's may end
# VMs there and launch nothing; that of VMs may put files into one container, and nothing else.

locals {
  # Who the dispatcher is: an identity that is made here, or the client by which it comes from another cloud.
  own_identity = !local.elsewhere || local.federated
  principal    = local.own_identity ? azurerm_user_assigned_identity.dispatcher[0].principal_id : var.dispatcher.principal

  # By the scopes that the driver assigns them on, each right that its calls need: tools/terraform_policies.py.
  rights = jsondecode(file("${path.module}/policies/dispatcher.json"))
  base   = local.rights[local.public_vms ? "public addresses" : "no public addresses"]

  # Of images of one's own: those of a gallery by their definitions.
  own_images     = [for id in values(var.images) : id if startswith(id, "/subscriptions/")]
  gallery_images = [for id in local.own_images : regex("^(.*/galleries/[^/]+/images/[^/]+)", id)[0] if strcontains(id, "/galleries/")]
  plain_images   = [for id in local.own_images : id if !strcontains(id, "/galleries/")]
  image_scopes   = toset(concat(local.gallery_images, local.plain_images))

  dispatcher_rights = {
    vms = local.base.vms
    use = sort(concat(
      local.base.use,
      length(local.gallery_images) > 0 ? local.rights["images of galleries"] : [],
      length(local.plain_images) > 0 ? local.rights["images"] : [],
    ))
    look = local.base.look
    hear = local.base.hear
  }

  # Where a custom role can be assigned is said by subscriptions and groups; it is then assigned on less.
  network_group = join("/", slice(split("/", local.subnet_id), 0, 5))
  bounds = {
    vms = [azurerm_resource_group.vms.id]
    use = distinct(concat(
      [azurerm_resource_group.own.id, local.network_group],
      [for id in local.image_scopes : join("/", slice(split("/", id), 0, 5))],
    ))
    look = [local.subscription]
    hear = [azurerm_resource_group.own.id]
  }

  used = merge({ for id in local.image_scopes : id => id }, {
    subnet = local.subnet_id
    wall   = azurerm_network_security_group.worker.id
    worker = azurerm_user_assigned_identity.worker.id
  })
}

resource "azurerm_user_assigned_identity" "dispatcher" {
  count               = local.own_identity ? 1 : 0
  name                = "${local.name}-dispatcher"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags
}

resource "azurerm_role_definition" "dispatcher" {
  for_each          = local.dispatcher_rights
  name              = "${local.name} dispatcher: ${each.key}"
  description       = "The control VM of the deployment ${var.deployment}"
  scope             = local.bounds[each.key][0]
  assignable_scopes = local.bounds[each.key]

  permissions {
    actions = each.value
  }
}

resource "azurerm_role_assignment" "dispatcher_vms" {
  scope              = azurerm_resource_group.vms.id
  role_definition_id = azurerm_role_definition.dispatcher["vms"].role_definition_resource_id
  principal_id       = local.principal
  principal_type     = "ServicePrincipal"
}

resource "azurerm_role_assignment" "dispatcher_use" {
  for_each           = local.used
  scope              = each.value
  role_definition_id = azurerm_role_definition.dispatcher["use"].role_definition_resource_id
  principal_id       = local.principal
  principal_type     = "ServicePrincipal"
}

resource "azurerm_role_assignment" "dispatcher_look" {
  scope              = local.subscription
  role_definition_id = azurerm_role_definition.dispatcher["look"].role_definition_resource_id
  principal_id       = local.principal
  principal_type     = "ServicePrincipal"
}

resource "azurerm_role_assignment" "dispatcher_hear" {
  scope              = azurerm_user_assigned_identity.reaper.id
  role_definition_id = azurerm_role_definition.dispatcher["hear"].role_definition_resource_id
  principal_id       = local.principal
  principal_type     = "ServicePrincipal"
}

# Copies of the state have what the dispatcher signs with: nobody else is let to them.
resource "azurerm_role_definition" "copies" {
  count             = local.here
  name              = "${local.name} copies"
  description       = "The control VM of the deployment ${var.deployment} keeps copies of its state"
  scope             = azurerm_resource_group.own.id
  assignable_scopes = [azurerm_resource_group.own.id]

  permissions {
    data_actions = jsondecode(file("${path.module}/policies/copies.json"))
  }
}

resource "azurerm_role_assignment" "copies" {
  count              = local.here
  scope              = azurerm_storage_container.own["copies"].resource_manager_id
  role_definition_id = azurerm_role_definition.copies[0].role_definition_resource_id
  principal_id       = local.principal
  principal_type     = "ServicePrincipal"
}

resource "azurerm_user_assigned_identity" "worker" {
  name                = "${local.name}-worker"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags
}

resource "azurerm_role_definition" "worker" {
  name              = "${local.name} worker"
  description       = "VMs of the deployment ${var.deployment}: they put artifacts, and read and delete none"
  scope             = azurerm_resource_group.own.id
  assignable_scopes = [azurerm_resource_group.own.id]

  permissions {
    data_actions = jsondecode(file("${path.module}/policies/worker.json"))
  }
}

resource "azurerm_role_assignment" "worker" {
  scope              = azurerm_storage_container.own["artifacts"].resource_manager_id
  role_definition_id = azurerm_role_definition.worker.role_definition_resource_id
  principal_id       = azurerm_user_assigned_identity.worker.principal_id
  principal_type     = "ServicePrincipal"
}

# A tag of it takes the signs of life that the reaper leaves, and the dispatcher reads.
resource "azurerm_user_assigned_identity" "reaper" {
  name                = "${local.name}-reaper"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags

  lifecycle {
    ignore_changes = [tags]
  }
}

resource "azurerm_role_definition" "reaper" {
  name              = "${local.name} reaper"
  description       = "Ends VMs of the deployment ${var.deployment} at their hard ends"
  scope             = azurerm_resource_group.vms.id
  assignable_scopes = [azurerm_resource_group.vms.id]

  permissions {
    actions = jsondecode(file("${path.module}/policies/reaper.json"))
  }
}

resource "azurerm_role_assignment" "reaper" {
  scope              = azurerm_resource_group.vms.id
  role_definition_id = azurerm_role_definition.reaper.role_definition_resource_id
  principal_id       = azurerm_user_assigned_identity.reaper.principal_id
  principal_type     = "ServicePrincipal"
}

resource "azurerm_role_definition" "reaper_sign" {
  name              = "${local.name} reaper: sign"
  description       = "The reaper of the deployment ${var.deployment} leaves its signs of life"
  scope             = azurerm_resource_group.own.id
  assignable_scopes = [azurerm_resource_group.own.id]

  permissions {
    actions = jsondecode(file("${path.module}/policies/sign.json"))
  }
}

resource "azurerm_role_assignment" "reaper_sign" {
  scope              = azurerm_user_assigned_identity.reaper.id
  role_definition_id = azurerm_role_definition.reaper_sign.role_definition_resource_id
  principal_id       = azurerm_user_assigned_identity.reaper.principal_id
  principal_type     = "ServicePrincipal"
}
