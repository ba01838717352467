variable "deployment" {
  description = "Name of the deployment: it stands in the names of what is made here and in a tag of every VM, and the reaper ends no others."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.deployment))
    error_message = "The deployment is a name of 1 to 32 lower-case letters, digits and hyphens, with no hyphen at its ends."
  }
}

variable "region" {
  description = "Azure's name of the region, as westeurope: everything is there."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9]+$", var.region))
    error_message = "A region is written as westeurope."
  }
}

variable "package" {
  description = "What pip installs on the control VM whenever that is made: a requirement with its one version (==), or the address of a wheel. By itself it is the release that this module came with; set it to the version that runs after an upgrade on the VM."
  type        = string
  default     = "cloud-dispatch[azure,bucket,postgres]==0.1.0"

  validation {
    condition     = can(regex("^[A-Za-z0-9._+@:/=<>!~,\\[\\]-]+$", var.package))
    error_message = "The package is a requirement that pip understands, without spaces and quotes."
  }

  validation {
    condition     = can(regex("==[0-9][0-9A-Za-z.!+]*$|[.]whl$", var.package))
    error_message = "The package ends with its version, as ==1.2.3, or is a wheel: any other change would bring the newest version along."
  }
}

variable "dispatcher" {
  description = "Where the dispatcher is elsewhere, by another of these modules. On AWS: the ARN of its role, the output dispatcher_role there, and who signs for that account (aws iam get-outbound-web-identity-federation-info). In any other place: the object id of the service principal that it is here. null: it is here."
  type        = object({ aws_role = optional(string), aws_issuer = optional(string), principal = optional(string) })
  default     = null

  validation {
    condition = var.dispatcher == null || try(contains(
      ["aws_issuer aws_role", "principal"], join(" ", [for name, said in var.dispatcher : name if said != null])
    ), false)
    error_message = "A dispatcher elsewhere is a role on AWS, by aws_role and aws_issuer, or a principal: one of the two."
  }

  validation {
    condition     = try(var.dispatcher.aws_role, null) == null || can(regex("^arn:aws:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_-]{1,64}$", var.dispatcher.aws_role))
    error_message = "A role is written as arn:aws:iam::123456789012:role/NAME."
  }

  validation {
    condition     = try(var.dispatcher.aws_issuer, null) == null || can(regex("^https://[A-Za-z0-9._/-]+$", var.dispatcher.aws_issuer))
    error_message = "An issuer is written as https://...: aws iam get-outbound-web-identity-federation-info prints it."
  }

  validation {
    condition     = try(var.dispatcher.principal, null) == null || can(regex("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", var.dispatcher.principal))
    error_message = "An object id is written as 00000000-1111-4222-8333-444444444444: az ad sp show --id CLIENT --query id."
  }
}

variable "pools" {
  description = "More of the dispatcher's configuration, in TOML: pools, budgets, projects. The profile \"azure\" is there already."
  type        = string
  default     = <<-EOT
    [pools.default]
    profiles = ["azure"]
    markets = ["spot", "on-demand"]
  EOT
}

variable "profile" {
  description = "More lines of the profile \"azure\", in TOML, as an image of yours or a larger disk."
  type        = string
  default     = ""
}

variable "sizes" {
  description = "Sizes that may be rented; with wildcards, as Standard_D*s_v5, which has Arm ones among them. Azure's rights know no sizes: the dispatcher alone keeps to them."
  type        = list(string)
  default = [
    "Standard_D2s_v5", "Standard_D4s_v5", "Standard_D8s_v5", "Standard_D16s_v5", "Standard_E4s_v5", "Standard_E8s_v5",
    "Standard_F*s_v2",
  ]

  validation {
    condition     = length(var.sizes) > 0 && alltrue([for one in var.sizes : can(regex("^[A-Za-z0-9_.*?-]+$", one))])
    error_message = "Name at least one size, as Standard_D*s_v5."
  }
}

variable "images" {
  description = "What VMs boot, by architecture (x86_64, arm64): images of yours by their ids, or PUBLISHER:OFFER:SKU:VERSION; none: Ubuntu 24.04."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for architecture, id in var.images :
      contains(["x86_64", "arm64"], architecture) &&
      can(regex("^([\\w.-]+(:[\\w.-]+){3}|/subscriptions/[^\"]+|/communityGalleries/[^\"]+)$", id))
    ])
    error_message = "An image is the id of one, or PUBLISHER:OFFER:SKU:VERSION, by x86_64 or arm64."
  }
}

variable "max_instances" {
  description = "So many VMs at once at most."
  type        = number
  default     = 20

  validation {
    condition     = var.max_instances > 0 && floor(var.max_instances) == var.max_instances
    error_message = "The number of VMs is a whole number above 0."
  }
}

variable "day_limit" {
  description = "US dollars that VMs may come to in a day, by the dispatcher's own limit."
  type        = number

  validation {
    condition     = var.day_limit > 0
    error_message = "The limit of a day is above 0."
  }
}

variable "month_limit" {
  description = "US dollars that VMs may come to in a month; the subscription's own budget alarm is set to the same number of its currency."
  type        = number

  validation {
    condition     = var.month_limit > 0
    error_message = "The limit of a month is above 0."
  }
}

variable "alarm_emails" {
  description = "Who is told when the reaper fails, the control VM is ill, or money runs out."
  type        = list(string)

  validation {
    condition     = length(var.alarm_emails) > 0 && alltrue([for one in var.alarm_emails : can(regex("^[^@ ]+@[^@ ]+$", one))])
    error_message = "Name at least one address: an alarm that nobody hears is none."
  }
}

variable "operator_cidrs" {
  description = "Networks from which operators reach the API, which is the only port that is open; none: by VMs alone."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.operator_cidrs : can(cidrhost(one, 0)) && one != "0.0.0.0/0"])
    error_message = "Networks are written as 192.0.2.0/24, and the whole world is none."
  }
}

variable "agent_cidrs" {
  description = "Where VMs of other clouds come from: networks that reach the API; VMs are told the first of names then."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.agent_cidrs : can(cidrhost(one, 0)) && one != "0.0.0.0/0"])
    error_message = "Networks are written as 192.0.2.0/24, and the whole world is none."
  }
}

variable "names" {
  description = "Host names that operators reach the API by, beside its addresses: they go into its certificate."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.names : can(regex("^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", one))])
    error_message = "A host name has letters, digits, hyphens and dots."
  }
}

variable "subnet_id" {
  description = "An existing subnet in the region, with a way out to the internet, by its id; null makes a network."
  type        = string
  default     = null

  validation {
    condition = var.subnet_id == null || can(regex(
      "^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.Network/virtualNetworks/[^/]+/subnets/[^/]+$",
      var.subnet_id,
    ))
    error_message = "A subnet's id is /subscriptions/.../resourceGroups/.../providers/Microsoft.Network/virtualNetworks/.../subnets/..."
  }
}

variable "control_address" {
  description = "A free private address of that subnet, which the control VM keeps."
  type        = string
  default     = null

  validation {
    condition     = var.control_address == null || can(cidrhost("${var.control_address}/32", 0))
    error_message = "An address is written as 10.0.0.10."
  }
}

variable "cidr" {
  description = "The network that is made: half of it is for VMs."
  type        = string
  default     = "10.47.0.0/16"

  validation {
    condition     = can(cidrhost(cidrsubnet(var.cidr, 8, 255), 10)) && try(tonumber(split("/", var.cidr)[1]) <= 20, false)
    error_message = "The network is written as 10.47.0.0/16, and is a /20 at least."
  }
}

variable "control_size" {
  description = "Size of the control VM (x86_64, with premium disks); a thousand VMs need about two cores."
  type        = string
  default     = "Standard_B2als_v2"

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]+$", var.control_size))
    error_message = "A size is written as Standard_B2als_v2."
  }
}

variable "ssh_public_key" {
  description = "A public key for the control VM: Azure makes no VM without one. No port is open for it."
  type        = string
  default     = null

  validation {
    condition     = var.ssh_public_key == null || can(regex("^ssh-(rsa|ed25519) [A-Za-z0-9+/=]+( .*)?$", var.ssh_public_key))
    error_message = "The key is written as in ~/.ssh/id_ed25519.pub."
  }
}

variable "database" {
  description = "Where the statestore is: \"embedded\", on the state's disk, or \"managed\", PostgreSQL that Azure runs."
  type        = string
  default     = "embedded"

  validation {
    condition     = contains(["embedded", "managed"], var.database)
    error_message = "The database is embedded or managed."
  }
}

variable "database_sku" {
  description = "Size of that PostgreSQL, as B_Standard_B1ms; for thousands of VMs GP_Standard_D2ds_v5."
  type        = string
  default     = "B_Standard_B1ms"

  validation {
    condition     = can(regex("^(B|GP|MO)_Standard_[A-Za-z0-9_]+$", var.database_sku))
    error_message = "The size is written as B_Standard_B1ms."
  }
}

variable "database_subnet_id" {
  description = "In an existing network: a subnet delegated to Microsoft.DBforPostgreSQL/flexibleServers, by its id."
  type        = string
  default     = null
}

variable "state_gib" {
  description = "Size of the disk with the dispatcher's state, logs and outputs."
  type        = number
  default     = 32

  validation {
    condition     = var.state_gib >= 8
    error_message = "The state needs 8 GiB at least."
  }
}

variable "snapshot_days" {
  description = "For so many days the daily snapshots of that disk are kept; 0: there are none."
  type        = number
  default     = 14

  validation {
    condition     = var.snapshot_days >= 0 && var.snapshot_days <= 360
    error_message = "Snapshots are kept for 0 to 360 days."
  }
}

variable "expire_days" {
  description = "After so many days what tasks have put into the container is deleted."
  type        = number
  default     = 90

  validation {
    condition     = var.expire_days >= 1
    error_message = "What is in the container is kept for a day at least."
  }
}

variable "identity_certificates" {
  description = "Certificates of who issues those of Azure's metadata service, by which VMs prove who they are; without them each launch makes one VM."
  type        = string
  default     = ""

  validation {
    condition     = var.identity_certificates == "" || can(regex("BEGIN CERTIFICATE", var.identity_certificates))
    error_message = "The certificates are PEM."
  }
}

variable "tags" {
  description = "More tags, of everything that is made here."
  type        = map(string)
  default     = {}
}

variable "restore_from" {
  description = "The address of a copy of the state (az://ACCOUNT/copies/latest), from which a control VM without any state is restored."
  type        = string
  default     = ""

  validation {
    condition     = var.restore_from == "" || can(regex("^az://[A-Za-z0-9._/-]+$", var.restore_from))
    error_message = "The address is written as az://ACCOUNT/copies/latest."
  }
}
