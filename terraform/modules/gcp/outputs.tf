output "url" {
  description = "Where VMs reach the dispatcher; null where it is elsewhere."
  value       = local.elsewhere ? null : "https://${local.host}:${local.port}"
}

output "public_url" {
  description = "Where operators in operator_cidrs reach it; null without any, and in an existing network."
  value       = one([for address in google_compute_address.public : "https://${address.address}:${local.port}"])
}

output "control_instance" {
  description = "The control VM, with its zone and project, as gcloud compute takes them; null where it is elsewhere."
  value       = one([for vm in google_compute_instance.control : "${vm.name} --zone=${local.zone} --project=${local.project}"])
}

output "bucket" {
  description = "The bucket that VMs may put artifacts into, below artifacts/."
  value       = google_storage_bucket.own.name
}

output "reaper_period_seconds" {
  description = "How often the reaper looks: so much later than its hard end a VM may be ended, and a little."
  value       = local.reaper_period_s
}

output "reaper_url" {
  description = "The reaper: who may call it can have it look now."
  value       = google_cloudfunctions2_function.reaper.service_config[0].uri
}

output "reaper_alarms" {
  description = "The alarms that say that the reaper fails or is not called: while one of them stands limits may be passed."
  value = [
    google_monitoring_alert_policy.reaper_fails.id,
    google_monitoring_alert_policy.reaper_silent.id,
  ]
}

output "dispatcher_account" {
  description = "The dispatcher's identity."
  value       = google_service_account.control.email
}

output "worker_account" {
  description = "The identity of VMs."
  value       = google_service_account.worker.email
}

# Who makes use of these comes after all that VMs need, and is destroyed before it: so nobody launches any more when the
# reaper is called for the last time.
output "profile" {
  description = "The profile \"gcp\", in TOML, for the configuration of a dispatcher elsewhere."
  value       = local.profile

  depends_on = [
    terraform_data.end_everything,
    google_cloud_scheduler_job.reaper,
    google_project_iam_member.dispatcher,
    google_service_account_iam_member.gives_worker,
    google_service_account_iam_member.dispatcher,
    google_storage_bucket_iam_member.worker,
    google_compute_router_nat.own,
    google_compute_firewall.closed,
  ]
}

output "files" {
  description = "Files that the profile names, for /etc/cloud-dispatch of a dispatcher elsewhere, by their names. None is a secret."
  value       = local.federation
}

output "egress_cidrs" {
  description = "Where VMs come from, for a dispatcher elsewhere to let them in; none in an existing network, which has its own ways out."
  value       = [for one in google_compute_address.out : "${one.address}/32"]
}
