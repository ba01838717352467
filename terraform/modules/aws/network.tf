# Without an existing VPC: one with a subnet in each of two zones, whose machines reach the internet and are reached by
# nobody. Public addresses cost less than a NAT gateway, and the groups below let nothing in.

data "aws_availability_zones" "here" {
  #checkov:skip=CKV_AWS_394: they are looked at once: subnets that there are stay where they are
  state = "available"
}

locals {
  makes_vpc  = var.vpc_id == null
  zones      = slice(data.aws_availability_zones.here.names, 0, 2)
  vpc_id     = local.makes_vpc ? aws_vpc.own[0].id : var.vpc_id
  subnet_ids = local.makes_vpc ? aws_subnet.own[*].id : var.subnet_ids
}

resource "aws_vpc" "own" {
  #checkov:skip=CKV2_AWS_11: nothing comes in, and what tasks move would be billed twice; turn them on in a VPC of yours
  count                = local.makes_vpc ? 1 : 0
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = local.name })
}

resource "aws_default_security_group" "closed" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
  tags   = merge(local.tags, { Name = "${local.name}-unused" })
}

resource "aws_internet_gateway" "own" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
  tags   = merge(local.tags, { Name = local.name })
}

resource "aws_route_table" "own" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
  tags   = merge(local.tags, { Name = local.name })

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.own[0].id
  }
}

resource "aws_subnet" "own" {
  #checkov:skip=CKV_AWS_130: public addresses cost less than a NAT gateway, and the groups let nothing in
  count                   = local.makes_vpc ? 2 : 0
  vpc_id                  = aws_vpc.own[0].id
  availability_zone       = local.zones[count.index]
  cidr_block              = cidrsubnet(var.cidr, 4, count.index)
  map_public_ip_on_launch = true
  tags                    = merge(local.tags, { Name = "${local.name}-${local.zones[count.index]}" })

  lifecycle {
    ignore_changes = [availability_zone]
  }
}

resource "aws_route_table_association" "own" {
  count          = local.makes_vpc ? 2 : 0
  subnet_id      = aws_subnet.own[count.index].id
  route_table_id = aws_route_table.own[0].id
}

resource "aws_security_group" "worker" {
  #checkov:skip=CKV2_AWS_5: the dispatcher gives it to the VMs that it launches
  name_prefix = "${local.name}-worker-"
  description = "VMs that work: they reach out and are reached by nobody"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-worker" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "control" {
  name_prefix = "${local.name}-control-"
  description = "The control VM: its API, and nothing else"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-control" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "out" {
  for_each          = { worker = aws_security_group.worker.id, control = aws_security_group.control.id }
  security_group_id = each.value
  description       = "Packages, images, the clouds' APIs, and what tasks ask for"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "agents" {
  security_group_id            = aws_security_group.control.id
  description                  = "Agents"
  referenced_security_group_id = aws_security_group.worker.id
  ip_protocol                  = "tcp"
  from_port                    = local.port
  to_port                      = local.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "outside" {
  for_each = merge(
    { for one in var.operator_cidrs : one => { of = "Operators", cidr = one } },
    # By number: other clouds' addresses may be known only when they are made.
    { for at, one in var.agent_cidrs : "elsewhere-${at}" => { of = "VMs of other clouds", cidr = one } },
  )
  security_group_id = aws_security_group.control.id
  description       = each.value.of
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = local.port
  to_port           = local.port
  tags              = local.tags

  lifecycle {
    precondition {
      condition     = length([for one in concat(var.operator_cidrs, var.agent_cidrs) : one if one == each.value.cidr]) == 1
      error_message = "${each.value.cidr} is let in twice: name it once, in operator_cidrs or in agent_cidrs."
    }
  }
}
