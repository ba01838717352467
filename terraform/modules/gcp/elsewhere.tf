# A dispatcher on AWS: its control VM's role is the dispatcher's account here, by what AWS signs of it. There is no key.

locals {
  # The role by its parts, and as AWS tells who makes use of it.
  role     = local.elsewhere ? regex("^arn:aws:iam::(?P<account>[0-9]+):role/(?P<name>.+)$", var.dispatcher.aws_role) : null
  aws_role = local.elsewhere ? "arn:aws:sts::${local.role.account}:assumed-role/${local.role.name}" : ""

  # What lies in /etc/cloud-dispatch of that control VM: where to go with what AWS signs. It opens nothing to others.
  federation = {
    for one in google_iam_workload_identity_pool_provider.dispatcher :
    "google.json" => templatefile("${path.module}/templates/google.json.tftpl", {
      provider = one.name
      account  = google_service_account.control.email
    })
  }
}

# Google keeps the name of one that was deleted for a month: each has another.
resource "google_iam_workload_identity_pool" "dispatcher" {
  count                     = local.elsewhere ? 1 : 0
  workload_identity_pool_id = "cd-${var.deployment}-${random_id.bucket.hex}"
  display_name              = "cd-${var.deployment}"
  description               = "The dispatcher of the deployment ${var.deployment}"

  lifecycle {
    precondition {
      condition     = var.database == "embedded"
      error_message = "The database is where the dispatcher is: with a dispatcher elsewhere there is none to make."
    }

    precondition {
      condition     = length(concat(var.operator_cidrs, var.agent_cidrs, var.names)) == 0 && !var.shell
      error_message = "Who reaches the dispatcher, and by which name (operator_cidrs, agent_cidrs, names, shell), is said where it is."
    }

    precondition {
      condition     = !var.public_vms
      error_message = "A dispatcher elsewhere has to know where VMs come from: they can't have addresses of their own (public_vms)."
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_iam_workload_identity_pool_provider" "dispatcher" {
  #checkov:skip=CKV_GCP_125: it trusts AWS, and of that one role
  count                              = local.elsewhere ? 1 : 0
  workload_identity_pool_id          = google_iam_workload_identity_pool.dispatcher[0].workload_identity_pool_id
  workload_identity_pool_provider_id = "dispatcher"
  display_name                       = "dispatcher"
  description                        = "The role of the control VM on AWS, and no other"
  attribute_condition                = "attribute.aws_role == \"${local.aws_role}\""

  attribute_mapping = {
    "google.subject"     = "assertion.arn"
    "attribute.aws_role" = "assertion.arn.extract('{before}assumed-role/') + 'assumed-role/' + assertion.arn.extract('assumed-role/{role}/')"
  }

  aws {
    account_id = local.role.account
  }
}

resource "google_service_account_iam_member" "dispatcher" {
  count              = local.elsewhere ? 1 : 0
  service_account_id = google_service_account.control.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${google_iam_workload_identity_pool.dispatcher[0].name}/attribute.aws_role/${local.aws_role}"

  depends_on = [google_iam_workload_identity_pool_provider.dispatcher]
}
