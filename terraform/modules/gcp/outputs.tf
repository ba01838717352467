output "url" {
  description = "Where VMs reach the dispatcher."
  value       = "https://${local.host}:${local.port}"
}

output "public_url" {
  description = "Where operators in operator_cidrs reach it; null without any, and in an existing network."
  value       = one([for address in google_compute_address.public : "https://${address.address}:${local.port}"])
}

output "control_instance" {
  description = "The control VM, with its zone and project, as gcloud compute takes them."
  value       = "${google_compute_instance.control.name} --zone=${local.zone} --project=${local.project}"
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
