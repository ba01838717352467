# Without an existing network: one with a subnet in each region. No machine has an address that is reached from outside,
# but the control VM where operators or other clouds come to it: a NAT gateway a region is the way out. It costs by the
# gigabyte, needs no quota of addresses, and nothing that listens by mistake is reached.

locals {
  makes_network = var.network == null
  network       = local.makes_network ? google_compute_network.own[0].id : var.network
  subnets = {
    for region in var.regions : region =>
    local.makes_network ? google_compute_subnetwork.own[region].id : lookup(var.subnets, region, "")
  }
  outside = concat(var.operator_cidrs, var.agent_cidrs)

  # VMs of other clouds and those here are told one name, which inside the network is the private address.
  by_name = length(var.agent_cidrs) > 0
  inside  = local.by_name && length(var.names) > 0 ? 1 : 0

  # By a name of its own, the region of each address that VMs come from: all of them may be in one region.
  ways_out = local.elsewhere && local.makes_network ? merge([
    for region in var.regions : { for at in range(ceil(var.max_instances / 256)) : "${region}-${at}" => region }
  ]...) : {}
}

resource "google_compute_network" "own" {
  #checkov:skip=CKV2_GCP_18: its firewalls are below, by the name of whichever network there is
  count                   = local.makes_network ? 1 : 0
  name                    = local.name
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"

  depends_on = [google_project_service.used]
}

resource "google_compute_subnetwork" "own" {
  #checkov:skip=CKV_GCP_26: nothing comes in, and what tasks move would be billed twice; turn them on in a network of yours
  #checkov:skip=CKV_GCP_76: VMs have IPv4 alone
  for_each                 = local.makes_network ? toset(var.regions) : []
  name                     = "${local.name}-${each.value}"
  region                   = each.value
  network                  = google_compute_network.own[0].id
  ip_cidr_range            = cidrsubnet(var.cidr, 4, index(var.regions, each.value))
  private_ip_google_access = true
}

resource "google_compute_router" "own" {
  for_each = local.makes_network ? toset(var.regions) : []
  name     = "${local.name}-${each.value}"
  region   = each.value
  network  = google_compute_network.own[0].id
}

# A dispatcher elsewhere lets in who comes from these: they stay. Each has 64,512 ports, some 250 for each of 256 VMs.
resource "google_compute_address" "out" {
  for_each    = local.ways_out
  name        = "${local.name}-${each.key}"
  description = "Where VMs of ${local.name} come from"
  region      = each.value
  labels      = local.labels

  depends_on = [google_project_service.used]
}

resource "google_compute_router_nat" "own" {
  for_each                            = google_compute_router.own
  name                                = each.value.name
  region                              = each.value.region
  router                              = each.value.name
  nat_ip_allocate_option              = local.elsewhere ? "MANUAL_ONLY" : "AUTO_ONLY"
  nat_ips                             = local.elsewhere ? [for key, of in local.ways_out : google_compute_address.out[key].self_link if of == each.key] : null
  source_subnetwork_ip_ranges_to_nat  = "ALL_SUBNETWORKS_ALL_IP_RANGES"
  enable_dynamic_port_allocation      = true
  enable_endpoint_independent_mapping = false
  min_ports_per_vm                    = 64
  max_ports_per_vm                    = 8192
}

# What an existing network lets in (the default one: ssh from everywhere) does not reach what is ours.
resource "google_compute_firewall" "closed" {
  name        = "${local.name}-closed"
  description = "The deployment ${var.deployment}: nothing comes in but what the others say"
  network     = local.network
  direction   = "INGRESS"
  priority    = 60000

  source_ranges           = ["0.0.0.0/0"]
  target_service_accounts = [google_service_account.control.email, google_service_account.worker.email]

  deny {
    protocol = "all"
  }

  lifecycle {
    precondition {
      condition     = alltrue([for one in values(local.subnets) : one != ""])
      error_message = "An existing network needs a subnet for each region: say them in subnets."
    }
  }
}

resource "google_compute_firewall" "agents" {
  count       = local.here
  name        = "${local.name}-agents"
  description = "Agents reach the API"
  network     = local.network
  direction   = "INGRESS"

  source_service_accounts = [google_service_account.worker.email]
  target_service_accounts = [google_service_account.control.email]

  allow {
    protocol = "tcp"
    ports    = [local.port]
  }
}

resource "google_compute_firewall" "outside" {
  count       = length(local.outside) > 0 ? 1 : 0
  name        = "${local.name}-outside"
  description = "Operators, and VMs of other clouds, reach the API"
  network     = local.network
  direction   = "INGRESS"

  source_ranges           = local.outside
  target_service_accounts = [google_service_account.control.email]

  allow {
    protocol = "tcp"
    ports    = [local.port]
  }
}

# Identity-Aware Proxy alone, which asks for a Google account and its right before it lets anybody through.
resource "google_compute_firewall" "shell" {
  count       = var.shell ? 1 : 0
  name        = "${local.name}-shell"
  description = "A shell through Identity-Aware Proxy"
  network     = local.network
  direction   = "INGRESS"

  source_ranges           = ["35.235.240.0/20"]
  target_service_accounts = [google_service_account.control.email]

  allow {
    protocol = "tcp"
    ports    = [22]
  }
}

resource "google_dns_managed_zone" "inside" {
  #checkov:skip=CKV_GCP_16: it is private: nobody outside can ask it
  count         = local.inside
  name          = local.name
  description   = "Inside the network the control VM's name is its private address"
  dns_name      = "${var.names[0]}."
  visibility    = "private"
  force_destroy = true
  labels        = local.labels

  private_visibility_config {
    networks {
      network_url = local.network
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_dns_record_set" "control" {
  count        = local.inside
  managed_zone = google_dns_managed_zone.inside[0].name
  name         = google_dns_managed_zone.inside[0].dns_name
  type         = "A"
  ttl          = 60
  rrdatas      = google_compute_address.control[*].address
}
