variable "deployment" {
  description = "Name of the deployment: it stands in a tag of every VM, and only what carries it may be ended."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.deployment))
    error_message = "The deployment is a name of 1 to 32 lower-case letters, digits and hyphens, with no hyphen at its ends."
  }
}

variable "package" {
  description = "What pip installs on the control VM whenever that is made: a requirement with its one version (==), or the address of a wheel. By itself it is the release that this module came with; set it to the version that runs after an upgrade on the VM."
  type        = string
  default     = "cloud-dispatch[aws,bucket,postgres]==0.1.0"

  validation {
    condition     = can(regex("^[A-Za-z0-9._+@:/=<>!~,\\[\\]-]+$", var.package))
    error_message = "The package is a requirement that pip understands, without spaces and quotes."
  }

  validation {
    condition     = can(regex("==[0-9][0-9A-Za-z.!+]*$|[.]whl$", var.package))
    error_message = "The package ends with its version, as ==1.2.3, or is a wheel: any other change would bring the newest version along."
  }
}

variable "pools" {
  description = "More of the dispatcher's configuration, in TOML: pools, budgets, projects. The profile \"aws\" is there already."
  type        = string
  default     = <<-EOT
    [pools.default]
    profiles = ["aws"]
    markets = ["spot", "on-demand"]
  EOT
}

variable "profile" {
  description = "More lines of the profile \"aws\", in TOML, as an image of yours or a larger disk."
  type        = string
  default     = ""
}

variable "files" {
  description = "More files in /etc/cloud-dispatch, by their names, as profiles of other clouds name them. No secrets: user data are read by whoever may look at the machine."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for name in keys(var.files) :
      can(regex("^[a-z0-9][a-z0-9._-]*$", name)) && !contains([
        "config.toml", "credentials", "database.pem", "environment", "files.json", "identity.pem", "restore-from",
      ], name)
    ])
    error_message = "A file's name has small letters, digits, dots, hyphens and underscores, and is none of the dispatcher's own."
  }
}

variable "token_audiences" {
  description = "Whom AWS may sign for who the control VM is, as profiles of other clouds need it: api://AzureADTokenExchange for Azure. The account has to have it switched on: aws iam enable-outbound-web-identity-federation."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.token_audiences : can(regex("^[A-Za-z0-9._:/-]+$", one))])
    error_message = "An audience is written as api://AzureADTokenExchange, and has no wildcards."
  }
}

variable "instance_types" {
  description = "Types that may be rented, with wildcards: also the only ones that the dispatcher's rights allow."
  type        = list(string)
  default     = ["c7i.*", "m7i.*", "r7i.*"]

  validation {
    condition     = length(var.instance_types) > 0
    error_message = "Name at least one instance type."
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
  description = "US dollars that VMs may come to in a month; the account's own budget alarm is set to it as well."
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
  description = "Networks from which operators reach the API, which is the only port that is open; none: by the VPC alone."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.operator_cidrs : can(cidrhost(one, 0)) && one != "0.0.0.0/0"])
    error_message = "Networks are written as 192.0.2.0/24, and the whole world is none."
  }
}

variable "agent_cidrs" {
  description = "Where VMs of other clouds come from: networks that reach the API; VMs are told its public name then."
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

variable "vpc_id" {
  description = "An existing VPC; null makes one."
  type        = string
  default     = null
}

variable "subnet_ids" {
  description = "Subnets of that VPC, with a way out to the internet, one a zone: the control VM is in the first."
  type        = list(string)
  default     = []
}

variable "cidr" {
  description = "The network of the VPC that is made."
  type        = string
  default     = "10.47.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.cidr, 4, 0))
    error_message = "The network is written as 10.47.0.0/16."
  }
}

variable "control_type" {
  description = "Instance type of the control VM (x86_64); a thousand VMs need about two cores."
  type        = string
  default     = "t3.small"
}

variable "state_gib" {
  description = "Size of the disk with the dispatcher's state, logs and outputs."
  type        = number
  default     = 20

  validation {
    condition     = var.state_gib >= 8
    error_message = "The state needs 8 GiB at least."
  }
}

variable "state_key" {
  description = "ARN of a KMS key of yours that the state's disk, the managed database and their snapshots are encrypted with. It is not the module's, so that it stays when everything is destroyed; null: AWS's own keys."
  type        = string
  default     = null

  validation {
    condition     = var.state_key == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.state_key))
    error_message = "The key is named by its ARN, arn:aws:kms:REGION:ACCOUNT:key/ID: an alias can become another key's."
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

variable "expire_days" {
  description = "After so many days what tasks have put into the bucket is deleted."
  type        = number
  default     = 90

  validation {
    condition     = var.expire_days >= 1
    error_message = "What is in the bucket is kept for a day at least."
  }
}

variable "identity_certificate" {
  description = "AWS's RSA-2048 certificate of the region, by which VMs prove who they are; without it each launch makes one VM."
  type        = string
  default     = ""

  validation {
    condition     = var.identity_certificate == "" || can(regex("BEGIN CERTIFICATE", var.identity_certificate))
    error_message = "The certificate is PEM."
  }
}

variable "database" {
  description = "Where the statestore is: \"embedded\", on the disk of the control VM with its snapshots, or \"managed\", PostgreSQL by RDS."
  type        = string
  default     = "embedded"

  validation {
    condition     = contains(["embedded", "managed"], var.database)
    error_message = "The database is \"embedded\" or \"managed\"."
  }
}

variable "database_type" {
  description = "Class of the managed database; a thousand VMs need about two cores."
  type        = string
  default     = "db.t4g.small"
}

variable "database_multi_az" {
  description = "A second managed database in another zone, which takes over by itself."
  type        = bool
  default     = false
}

variable "database_certificate" {
  description = "Amazon's CAs of RDS in the region, as PEM: with them the control VM knows the managed database from another machine; without, TLS alone."
  type        = string
  default     = ""

  validation {
    condition     = var.database_certificate == "" || (can(regex("BEGIN CERTIFICATE", var.database_certificate)) && length(var.database_certificate) < 8192)
    error_message = "The certificates are PEM, of one region: those of all regions do not fit into a machine's user data."
  }
}

variable "database_protected" {
  description = "The managed database can't be deleted, by Terraform neither, until this is false."
  type        = bool
  default     = true
}

variable "database_final_snapshot" {
  description = "A last snapshot of the managed database stays when it is destroyed."
  type        = bool
  default     = true
}

variable "restore_from" {
  description = "The address of a copy of the state (s3://BUCKET/copies/latest), from which a control VM without any state is restored."
  type        = string
  default     = ""

  validation {
    condition     = var.restore_from == "" || can(regex("^s3://[A-Za-z0-9._/-]+$", var.restore_from))
    error_message = "The address is written as s3://BUCKET/copies/latest."
  }
}

variable "keep_snapshots" {
  description = "Snapshots of the state's disk stay when everything is destroyed."
  type        = bool
  default     = false
}

variable "tags" {
  description = "More tags, of everything that is made here."
  type        = map(string)
  default     = {}
}
