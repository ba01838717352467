variable "deployment" {
  description = "Name of the deployment: it stands in a label and in the name of every VM, and only what is called so may be ended."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9]|-[a-z0-9])*$", var.deployment)) && length(var.deployment) <= 18
    error_message = "The deployment is a name of 1 to 18 lower-case letters, digits and single hyphens that begins with a letter."
  }
}

variable "package" {
  description = "What pip installs on the control VM whenever that is made: a requirement with its one version (==), or the address of a wheel. By itself it is the release that this module came with; set it to the version that runs after an upgrade on the VM."
  type        = string
  default     = "cloud-dispatch[bucket,gcp,postgres]==0.1.0"

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
  description = "Where the dispatcher is on AWS, by another of these modules: the ARN of its role, the output dispatcher_role there; null: it is here."
  type        = object({ aws_role = string })
  default     = null

  validation {
    condition     = var.dispatcher == null || can(regex("^arn:aws:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_-]{1,64}$", var.dispatcher.aws_role))
    error_message = "A role is written as arn:aws:iam::123456789012:role/NAME."
  }
}

variable "pools" {
  description = "More of the dispatcher's configuration, in TOML: pools, budgets, projects. The profile \"gcp\" is there already."
  type        = string
  default     = <<-EOT
    [pools.default]
    profiles = ["gcp"]
    markets = ["spot", "on-demand"]
  EOT
}

variable "profile" {
  description = "More lines of the profile \"gcp\", in TOML, as an image of yours or a larger disk."
  type        = string
  default     = ""
}

variable "regions" {
  description = "In which VMs may be rented; the control VM is in the first."
  type        = list(string)
  default     = ["us-central1"]

  validation {
    condition     = length(var.regions) > 0 && length(var.regions) <= 16 && alltrue([for one in var.regions : can(regex("^[a-z]+-[a-z]+[0-9]+$", one))])
    error_message = "Name 1 to 16 regions, as us-central1."
  }
}

variable "zone" {
  description = "The control VM's zone; null: the first region's b."
  type        = string
  default     = null

  validation {
    condition     = var.zone == null || can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z]$", var.zone))
    error_message = "A zone is written as us-central1-b."
  }
}

variable "instance_types" {
  description = "Types that may be rented, with wildcards."
  type        = list(string)
  default     = ["e2-standard-*", "n2-standard-*", "n2-highmem-*"]

  validation {
    condition     = length(var.instance_types) > 0
    error_message = "Name at least one machine type."
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
  description = "US dollars that VMs may come to in a month; the billing account's own budget alarm is set to it as well."
  type        = number

  validation {
    condition     = var.month_limit > 0
    error_message = "The limit of a month is above 0."
  }
}

variable "billing_account" {
  description = "The account that pays, as 012345-6789AB-CDEF01, for an alarm of its own at month_limit, in its currency; null: no such alarm."
  type        = string
  default     = null

  validation {
    condition     = var.billing_account == null || can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "A billing account is written as 012345-6789AB-CDEF01."
  }
}

variable "alarm_emails" {
  description = "Who is told when the reaper fails, the control VM is down, or money runs out."
  type        = list(string)

  validation {
    condition     = length(var.alarm_emails) > 0 && length(var.alarm_emails) <= 5 && alltrue([for one in var.alarm_emails : can(regex("^[^@ ]+@[^@ ]+$", one))])
    error_message = "Name 1 to 5 addresses: an alarm that nobody hears is none, and a budget tells five at most."
  }
}

variable "operator_cidrs" {
  description = "Networks from which operators reach the API, which is the only port that is open; none: by the network alone."
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

variable "shell" {
  description = "Whether the control VM's port 22 is open to Google's Identity-Aware Proxy: gcloud compute ssh --tunnel-through-iap."
  type        = bool
  default     = false
}

variable "reaper_callers" {
  description = "Who may call the reaper by hand, as terraform destroy does, as user:ops@example.org; the project's owners may anyway."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.reaper_callers : can(regex("^(user|group|serviceAccount):[^@ ]+@[^@ ]+$", one))])
    error_message = "Members are written as user:ops@example.org, and everybody is none."
  }
}

variable "network" {
  description = "An existing network of the project, as projects/P/global/networks/N; null makes one."
  type        = string
  default     = null

  validation {
    condition     = var.network == null || can(regex("^projects/[^/]+/global/networks/[^/]+$", var.network))
    error_message = "A network is written as projects/P/global/networks/N."
  }
}

variable "subnets" {
  description = "Subnets of that network by region, with a way out to the internet, as projects/P/regions/R/subnetworks/S."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for one in values(var.subnets) : can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", one))])
    error_message = "Subnets are written as projects/P/regions/R/subnetworks/S."
  }
}

variable "cidr" {
  description = "The network that is made: each region has a sixteenth of it."
  type        = string
  default     = "10.48.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.cidr, 4, 0))
    error_message = "The network is written as 10.48.0.0/16."
  }
}

variable "public_vms" {
  description = "Whether VMs have an address of their own, which costs by the hour and has a quota, in place of a NAT gateway, which costs by the gigabyte."
  type        = bool
  default     = false
}

variable "control_type" {
  description = "Machine type of the control VM (x86_64); a thousand VMs need about two cores."
  type        = string
  default     = "e2-small"
}

variable "state_gib" {
  description = "Size of the disk with the dispatcher's state, logs and outputs."
  type        = number
  default     = 20

  validation {
    condition     = var.state_gib >= 10
    error_message = "The state needs 10 GiB at least."
  }
}

variable "snapshot_days" {
  description = "For so many days the daily snapshots of that disk are kept."
  type        = number
  default     = 14

  validation {
    condition     = var.snapshot_days >= 1
    error_message = "Snapshots are kept for a day at least."
  }
}

variable "keep_snapshots" {
  description = "Whether snapshots of the state stay when all of this is destroyed; set it and apply before you destroy."
  type        = bool
  default     = false
}

variable "expire_days" {
  description = "After so many days what tasks have put into the bucket is deleted."
  type        = number
  default     = 90

  validation {
    condition     = var.expire_days >= 1
    error_message = "What is in the bucket is kept for a day at least."
  }
}

variable "database" {
  description = "\"embedded\": SQLite on the control VM's disk; \"managed\": PostgreSQL of Cloud SQL, which outlives the control VM."
  type        = string
  default     = "embedded"

  validation {
    condition     = contains(["embedded", "managed"], var.database)
    error_message = "The database is embedded or managed."
  }
}

variable "database_tier" {
  description = "Machine type of the managed database."
  type        = string
  default     = "db-custom-1-3840"
}

variable "database_available" {
  description = "Whether the managed database has a second machine in another zone."
  type        = bool
  default     = false
}

variable "database_protected" {
  description = "Whether the managed database can't be destroyed; set it to false and apply before you destroy."
  type        = bool
  default     = true
}

variable "labels" {
  description = "More labels, of everything that is made here."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key in keys(var.labels) : !startswith(key, "cloud-dispatch-")])
    error_message = "Labels that begin with cloud-dispatch- are not yours to set."
  }
}

variable "restore_from" {
  description = "The address of a copy of the state (gs://BUCKET/copies/latest), from which a control VM without any state is restored."
  type        = string
  default     = ""

  validation {
    condition     = var.restore_from == "" || can(regex("^gs://[A-Za-z0-9._/-]+$", var.restore_from))
    error_message = "The address is written as gs://BUCKET/copies/latest."
  }
}
