# The control VM. Its state is on a disk of its own, and its address stays, so that another one can take its place.

locals {
  host  = length(var.agent_cidrs) > 0 ? concat(var.names, [""])[0] : join("", local.control_address[*])
  names = concat([local.control_address], azurerm_public_ip.control[*].ip_address, var.names)

  # Where the dispatcher puts a copy of its state each hour; PostgreSQL that Azure runs has backups of its own.
  copies = local.elsewhere ? "" : "az://${azurerm_storage_account.own.name}/${azurerm_storage_container.own["copies"].name}"

  config = templatefile("${path.module}/templates/config.toml.tftpl", {
    deployment = var.deployment
    port       = local.port
    host       = local.host
    names      = jsonencode(local.names)
    store      = local.store
    copies     = local.copies
    copied     = var.database == "managed" ? "keys" : "everything"
    profile    = local.profile
    pools      = var.pools
  })

  # How a dispatcher signs in: as the identity that the control VM has, as the one that its role on AWS is taken for, or as
  # the client that its environment names.
  credential = join("\n", concat(
    ["credential = \"${local.federated ? "aws" : local.elsewhere ? "environment" : "managed"}\""],
    [for one in azurerm_user_assigned_identity.dispatcher : "client = \"${one.client_id}\""],
    [for one in azurerm_federated_identity_credential.dispatcher : "tenant = \"${data.azurerm_client_config.here.tenant_id}\""],
  ))

  # What a dispatcher is told of this, wherever it is.
  profile = templatefile("${path.module}/templates/profile.toml.tftpl", {
    subscription          = local.subscription_id
    resource_group        = azurerm_resource_group.vms.name
    region                = var.region
    credential            = local.credential
    sizes                 = jsonencode(var.sizes)
    images                = join("\n", [for architecture, id in var.images : "images.${architecture} = \"${id}\""])
    subnet                = local.subnet_id
    security_group        = azurerm_network_security_group.worker.id
    public_address        = tostring(local.public_vms)
    identity              = azurerm_user_assigned_identity.worker.id
    identity_certificates = join("", [for name in keys(local.profile_files) : "/etc/cloud-dispatch/${name}"])
    reaper_period         = "${local.reaper_period_s}s"
    reaper_sign           = azurerm_user_assigned_identity.reaper.id
    max_instances         = var.max_instances
    day_limit             = var.day_limit
    month_limit           = var.month_limit
    profile               = var.profile
  })

  # What lies in /etc/cloud-dispatch. Nothing of it is a secret: user data are read by whoever may look at the machine.
  files = merge(
    { "config.toml" = local.config },
    local.profile_files,
    var.restore_from == "" ? {} : { "restore-from" = var.restore_from },
  )

  # What the profile names.
  profile_files = var.identity_certificates == "" ? {} : { "azure-identity.pem" = var.identity_certificates }

  user_data = templatefile("${path.module}/../shared/control.yaml.tftpl", {
    package = var.package
    files   = base64encode(jsonencode(local.files))
    devices = "/dev/disk/azure/scsi1/lun0 /dev/disk/azure/data/by-lun/0"
  })
}

resource "azurerm_public_ip" "control" {
  count               = local.makes_network ? local.here : 0
  name                = "${local.name}-control"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  allocation_method   = "Static"
  sku                 = "Standard"
  tags                = local.tags
}

resource "azurerm_network_interface" "control" {
  #checkov:skip=CKV2_AZURE_39: the serial console asks for a password, and nobody has one
  #checkov:skip=CKV_AZURE_119: it is the way out, and the group below lets the networks in operator_cidrs in, to the API alone
  count               = local.here
  name                = "${local.name}-control"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags

  ip_configuration {
    name                          = "primary"
    subnet_id                     = local.control_subnet_id
    private_ip_address_allocation = "Static"
    private_ip_address            = local.control_address
    public_ip_address_id          = one(azurerm_public_ip.control[*].id)
  }

  lifecycle {
    precondition {
      condition     = local.control_address != null
      error_message = "In an existing subnet the control VM needs a free address that stays: control_address."
    }
  }
}

resource "azurerm_network_interface_security_group_association" "control" {
  count                     = local.here
  network_interface_id      = azurerm_network_interface.control[0].id
  network_security_group_id = azurerm_network_security_group.control[0].id
}

resource "azurerm_linux_virtual_machine" "control" {
  #checkov:skip=CKV_AZURE_50: the only shell on it, az vm run-command, is one
  count                           = local.here
  name                            = "${local.name}-control"
  resource_group_name             = azurerm_resource_group.own.name
  location                        = var.region
  size                            = var.control_size
  admin_username                  = "operator"
  disable_password_authentication = true
  network_interface_ids           = [azurerm_network_interface.control[0].id]
  custom_data                     = base64gzip(local.user_data)
  secure_boot_enabled             = true
  vtpm_enabled                    = true
  tags                            = local.tags

  # Azure wants one. No port is open for it: a shell is `az vm run-command`.
  admin_ssh_key {
    username   = "operator"
    public_key = var.ssh_public_key
  }

  identity {
    type         = "UserAssigned"
    identity_ids = azurerm_user_assigned_identity.dispatcher[*].id
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "StandardSSD_LRS"
    disk_size_gb         = 32
  }

  source_image_reference {
    publisher = "Canonical"
    offer     = "ubuntu-24_04-lts"
    sku       = "server"
    version   = "latest"
  }

  boot_diagnostics {}

  lifecycle {
    precondition {
      condition     = var.ssh_public_key != null
      error_message = "Azure makes no control VM without a public key: ssh_public_key."
    }

    precondition {
      condition     = local.host != ""
      error_message = "VMs of other clouds (agent_cidrs) need a name that they reach the control VM by: the first of names."
    }
  }

  # The hand that ends VMs is there before it and after it: and the group of VMs is destroyed when it is gone.
  depends_on = [
    azurerm_linux_function_app.reaper,
    azurerm_role_assignment.dispatcher_vms,
    azurerm_role_assignment.dispatcher_use,
    azurerm_role_assignment.dispatcher_look,
    azurerm_role_assignment.dispatcher_hear,
    azurerm_role_assignment.copies,
    azurerm_role_assignment.worker,
    azurerm_role_assignment.dispatcher_secret,
    azurerm_network_interface_security_group_association.control,
    azurerm_network_security_rule.nobody_else,
  ]
}

resource "azurerm_virtual_machine_data_disk_attachment" "state" {
  count              = local.here
  managed_disk_id    = azurerm_managed_disk.state[0].id
  virtual_machine_id = azurerm_linux_virtual_machine.control[0].id
  lun                = 0
  caching            = "ReadOnly"
}
