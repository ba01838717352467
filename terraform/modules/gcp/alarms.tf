# Who is told, and of what: a reaper that fails or is not called, a control VM that is down, money. Calls that were turned
# away (4xx) are none: strangers may make them.

locals {
  calls = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${google_cloudfunctions2_function.reaper.name}\" AND metric.type = \"run.googleapis.com/request_count\""
}

resource "google_monitoring_notification_channel" "alarms" {
  for_each     = toset(var.alarm_emails)
  display_name = "${local.name}: ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }
  user_labels  = local.labels

  depends_on = [google_project_service.used]
}

resource "google_monitoring_alert_policy" "reaper_fails" {
  display_name          = "${local.name}: the reaper fails"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = [for one in google_monitoring_notification_channel.alarms : one.id]
  user_labels           = local.labels

  documentation {
    content = "A VM past its hard end could not be ended, or Compute Engine could not be asked: see the function's log."
  }

  conditions {
    display_name = "Failed for three minutes"

    condition_threshold {
      filter          = "${local.calls} AND metric.labels.response_code_class = \"5xx\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "180s"

      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }
}

resource "google_monitoring_alert_policy" "reaper_silent" {
  display_name          = "${local.name}: the reaper is not called"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = [for one in google_monitoring_notification_channel.alarms : one.id]
  user_labels           = local.labels

  documentation {
    content = "Nobody has called the reaper for five minutes: VMs that have stopped go on costing past their hard ends."
  }

  conditions {
    display_name = "Not called for five minutes"

    condition_absent {
      filter   = "${local.calls} AND metric.labels.response_code_class = one_of(\"2xx\", \"5xx\")"
      duration = "300s"

      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }
}

resource "google_monitoring_alert_policy" "control_down" {
  count                 = local.here
  display_name          = "${local.name}: the control VM is down"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = [for one in google_monitoring_notification_channel.alarms : one.id]
  user_labels           = local.labels

  documentation {
    content = "The control VM does not run. VMs go on and end by themselves; nothing new is started."
  }

  conditions {
    display_name = "Down for five minutes"

    condition_absent {
      filter   = "resource.type = \"gce_instance\" AND resource.labels.instance_id = \"${google_compute_instance.control[0].instance_id}\" AND metric.type = \"compute.googleapis.com/instance/uptime\""
      duration = "300s"

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_RATE"
      }
    }
  }
}

# A second net: the billing account's own count, hours late. It ends nothing.
resource "google_billing_budget" "month" {
  count           = var.billing_account == null ? 0 : 1
  billing_account = var.billing_account
  display_name    = local.name

  budget_filter {
    projects        = ["projects/${data.google_project.here.number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      units = floor(var.month_limit)
    }
  }

  threshold_rules {
    threshold_percent = 0.8
    spend_basis       = "CURRENT_SPEND"
  }

  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }

  all_updates_rule {
    monitoring_notification_channels = [for one in google_monitoring_notification_channel.alarms : one.id]
  }

  depends_on = [google_project_service.used]
}

check "budget" {
  assert {
    condition     = var.billing_account != null
    error_message = "Without billing_account nobody but the dispatcher watches what the project is billed: no second net."
  }
}
