output "url" {
  description = "Where VMs reach the dispatcher; null where it is elsewhere."
  value       = local.elsewhere ? null : "https://${local.host}:${local.port}"
}

output "public_url" {
  description = "Where operators in operator_cidrs reach it; null in an existing network."
  value       = one([for address in azurerm_public_ip.control : "https://${address.ip_address}:${local.port}"])
}

output "resource_group" {
  description = "The group of all that Terraform makes; az vm run-command wants it."
  value       = azurerm_resource_group.own.name
}

output "vms_resource_group" {
  description = "The group of rented VMs, in which nothing else lives."
  value       = azurerm_resource_group.vms.name
}

output "control_vm" {
  description = "The control VM: az vm run-command invoke says something to its shell; null where it is elsewhere."
  value       = one(azurerm_linux_virtual_machine.control[*].name)
}

output "container" {
  description = "The container that VMs may put artifacts into."
  value       = "https://${azurerm_storage_account.own.name}.blob.core.windows.net/${azurerm_storage_container.own["artifacts"].name}"
}

output "copies" {
  description = "Where the copies of the state are: cloud-dispatch restore takes the latest of them on another control VM; null where the dispatcher is elsewhere."
  value       = local.elsewhere ? null : local.copies
}

output "reaper_period_seconds" {
  description = "How often the reaper looks: so much later than its hard end a VM may be ended, and a little."
  value       = local.reaper_period_s
}

output "reaper_alarms" {
  description = "The alarms that say that the reaper fails or does not look: while one of them stands limits may be passed."
  value = [
    azurerm_monitor_scheduled_query_rules_alert_v2.reaper_fails.id,
    azurerm_monitor_scheduled_query_rules_alert_v2.reaper_silent.id,
  ]
}

output "dispatcher_identity" {
  description = "The dispatcher's identity; null where it is a client of its own."
  value       = one(azurerm_user_assigned_identity.dispatcher[*].id)
}

output "worker_identity" {
  description = "The identity of VMs."
  value       = azurerm_user_assigned_identity.worker.id
}

output "worker_client" {
  description = "The client id of that identity, by which tasks on a VM ask for its tokens."
  value       = azurerm_user_assigned_identity.worker.client_id
}

output "reaper_identity" {
  description = "The reaper's identity."
  value       = azurerm_user_assigned_identity.reaper.id
}

# Who makes use of it comes after all that VMs need, and is destroyed before it: so nobody launches any more when the group
# of VMs is emptied.
output "profile" {
  description = "The profile \"azure\", in TOML, for the configuration of a dispatcher elsewhere."
  value       = local.profile

  depends_on = [
    azurerm_linux_function_app.reaper,
    azurerm_role_assignment.dispatcher_vms,
    azurerm_role_assignment.dispatcher_use,
    azurerm_role_assignment.dispatcher_look,
    azurerm_role_assignment.dispatcher_hear,
    azurerm_role_assignment.worker,
  ]
}

output "files" {
  description = "Files that the profile names, for /etc/cloud-dispatch of a dispatcher elsewhere, by their names. None is a secret."
  value       = local.profile_files
}

output "egress_cidrs" {
  description = "Where VMs come from, for a dispatcher elsewhere to let them in; none in an existing network, which has its own ways out."
  value       = [for one in azurerm_public_ip.out : "${one.ip_address}/32"]
}
