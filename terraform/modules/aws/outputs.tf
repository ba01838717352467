output "url" {
  description = "Where VMs reach the dispatcher."
  value       = "https://${local.host}:${local.port}"
}

output "public_url" {
  description = "Where operators in operator_cidrs reach it; null in an existing VPC."
  value       = one([for address in aws_eip.control : "https://${address.public_ip}:${local.port}"])
}

output "control_instance" {
  description = "The control VM: aws ssm start-session --target ID is a shell on it."
  value       = aws_instance.control.id
}

output "bucket" {
  description = "The bucket that VMs may put artifacts into, below artifacts/."
  value       = aws_s3_bucket.own.id
}

output "reaper_period_seconds" {
  description = "How often the reaper looks: so much later than its hard end a VM may be ended, and a little."
  value       = local.reaper_period_s
}

output "reaper_alarms" {
  description = "The alarms that say that the reaper fails or is not called: while one of them stands limits may be passed."
  value = [
    aws_cloudwatch_metric_alarm.reaper_fails.arn,
    aws_cloudwatch_metric_alarm.reaper_silent.arn,
  ]
}

output "dispatcher_role" {
  description = "The dispatcher's identity."
  value       = aws_iam_role.dispatcher.arn
}

output "worker_role" {
  description = "The identity of VMs."
  value       = aws_iam_role.worker.arn
}
