# Without an existing subnet: a network whose machines reach the internet by addresses of their own, and are reached by
# nobody: the groups below let nothing in. A NAT gateway costs a dollar a day, and what tasks download by the gigabyte: it
# is there where the dispatcher is elsewhere, which has to know where VMs come from. Nothing rests on Azure's default way
# out, which is being retired.

locals {
  makes_network = var.subnet_id == null
  existing      = local.makes_network ? [] : split("/", var.subnet_id)
  network_id    = local.makes_network ? azurerm_virtual_network.own[0].id : join("/", slice(local.existing, 0, 9))
  subnet_id     = local.makes_network ? azurerm_subnet.workers[0].id : var.subnet_id

  # Addresses of the VMs' own, or a NAT gateway's.
  public_vms = local.makes_network && !local.elsewhere
  ways_out   = local.makes_network && local.elsewhere ? min(16, ceil(var.max_instances / 256)) : 0

  control_cidr      = cidrsubnet(var.cidr, 8, 255)
  control_subnet_id = local.makes_network ? join("", azurerm_subnet.control[*].id) : var.subnet_id
  control_address   = local.makes_network ? cidrhost(local.control_cidr, 10) : var.control_address

  worker_cidrs = concat(
    flatten(azurerm_subnet.workers[*].address_prefixes),
    flatten(data.azurerm_subnet.existing[*].address_prefixes),
  )
}

data "azurerm_subnet" "existing" {
  count                = local.makes_network ? 0 : 1
  name                 = local.existing[10]
  virtual_network_name = local.existing[8]
  resource_group_name  = local.existing[4]
}

resource "azurerm_virtual_network" "own" {
  count               = local.makes_network ? 1 : 0
  name                = local.name
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  address_space       = [var.cidr]
  tags                = local.tags
}

resource "azurerm_subnet" "workers" {
  count                           = local.makes_network ? 1 : 0
  name                            = "workers"
  resource_group_name             = azurerm_resource_group.own.name
  virtual_network_name            = azurerm_virtual_network.own[0].name
  address_prefixes                = [cidrsubnet(var.cidr, 1, 0)]
  default_outbound_access_enabled = false
}

resource "azurerm_subnet" "control" {
  count                           = local.makes_network ? local.here : 0
  name                            = "control"
  resource_group_name             = azurerm_resource_group.own.name
  virtual_network_name            = azurerm_virtual_network.own[0].name
  address_prefixes                = [local.control_cidr]
  default_outbound_access_enabled = false
}

# A dispatcher elsewhere lets in who comes from these: they stay. Each has 64,512 ports, some 250 for each of 256 VMs.
resource "azurerm_public_ip" "out" {
  count               = local.ways_out
  name                = "${local.name}-out-${count.index}"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  allocation_method   = "Static"
  sku                 = "Standard"
  tags                = local.tags
}

resource "azurerm_nat_gateway" "out" {
  count                   = min(1, local.ways_out)
  name                    = local.name
  resource_group_name     = azurerm_resource_group.own.name
  location                = var.region
  sku_name                = "Standard"
  idle_timeout_in_minutes = 10
  tags                    = local.tags
}

resource "azurerm_nat_gateway_public_ip_association" "out" {
  count                = local.ways_out
  nat_gateway_id       = azurerm_nat_gateway.out[0].id
  public_ip_address_id = azurerm_public_ip.out[count.index].id
}

resource "azurerm_subnet_nat_gateway_association" "workers" {
  count          = min(1, local.ways_out)
  subnet_id      = azurerm_subnet.workers[0].id
  nat_gateway_id = azurerm_nat_gateway.out[0].id
}

resource "azurerm_network_security_group" "worker" {
  name                = "${local.name}-worker"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags
}

resource "azurerm_network_security_rule" "nobody_works" {
  name                        = "nobody"
  description                 = "VMs that work reach out and are reached by nobody, not even by each other"
  resource_group_name         = azurerm_resource_group.own.name
  network_security_group_name = azurerm_network_security_group.worker.name
  priority                    = 4096
  direction                   = "Inbound"
  access                      = "Deny"
  protocol                    = "*"
  source_address_prefix       = "*"
  source_port_range           = "*"
  destination_address_prefix  = "*"
  destination_port_range      = "*"
}

resource "azurerm_network_security_group" "control" {
  count               = local.here
  name                = "${local.name}-control"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  tags                = local.tags
}

resource "azurerm_network_security_rule" "api" {
  # Which there are is known before any network is made.
  for_each = local.elsewhere ? {} : merge(
    { agents = { of = "VMs", priority = 100 } },
    length(var.operator_cidrs) > 0 ? { operators = { of = "Operators", priority = 110 } } : {},
    length(var.agent_cidrs) > 0 ? { elsewhere = { of = "VMs of other clouds", priority = 120 } } : {},
  )

  name                        = each.key
  description                 = each.value.of
  resource_group_name         = azurerm_resource_group.own.name
  network_security_group_name = azurerm_network_security_group.control[0].name
  priority                    = each.value.priority
  direction                   = "Inbound"
  access                      = "Allow"
  protocol                    = "Tcp"
  source_address_prefixes     = { agents = local.worker_cidrs, operators = var.operator_cidrs, elsewhere = var.agent_cidrs }[each.key]
  source_port_range           = "*"
  destination_address_prefix  = "*"
  destination_port_range      = tostring(local.port)
}

# What Azure lets in by itself is everything from within the network.
resource "azurerm_network_security_rule" "nobody_else" {
  count                       = local.here
  name                        = "nobody"
  description                 = "The control VM: its API, and nothing else"
  resource_group_name         = azurerm_resource_group.own.name
  network_security_group_name = azurerm_network_security_group.control[0].name
  priority                    = 4096
  direction                   = "Inbound"
  access                      = "Deny"
  protocol                    = "*"
  source_address_prefix       = "*"
  source_port_range           = "*"
  destination_address_prefix  = "*"
  destination_port_range      = "*"
}

# The groups are on the machines' interfaces, and on the subnets for what is put there without.
resource "azurerm_subnet_network_security_group_association" "workers" {
  count                     = local.makes_network ? 1 : 0
  subnet_id                 = azurerm_subnet.workers[0].id
  network_security_group_id = azurerm_network_security_group.worker.id
}

resource "azurerm_subnet_network_security_group_association" "control" {
  count                     = local.makes_network ? local.here : 0
  subnet_id                 = azurerm_subnet.control[0].id
  network_security_group_id = azurerm_network_security_group.control[0].id
}

# VMs of other clouds know the control VM by a name. In the network it stands for the private address.
resource "azurerm_private_dns_zone" "host" {
  count               = local.makes_network && length(var.agent_cidrs) > 0 ? 1 : 0
  name                = local.host
  resource_group_name = azurerm_resource_group.own.name
  tags                = local.tags
}

resource "azurerm_private_dns_a_record" "host" {
  count               = length(azurerm_private_dns_zone.host)
  name                = "@"
  zone_name           = azurerm_private_dns_zone.host[0].name
  resource_group_name = azurerm_resource_group.own.name
  ttl                 = 300
  records             = [local.control_address]
}

resource "azurerm_private_dns_zone_virtual_network_link" "host" {
  count                 = length(azurerm_private_dns_zone.host)
  name                  = "workers"
  private_dns_zone_name = azurerm_private_dns_zone.host[0].name
  resource_group_name   = azurerm_resource_group.own.name
  virtual_network_id    = local.network_id
}
