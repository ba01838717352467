# Who is told, and of what: a reaper that fails or does not look, a control VM that is ill, money.

resource "azurerm_log_analytics_workspace" "own" {
  name                = local.name
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  sku                 = "PerGB2018"
  retention_in_days   = 90
  daily_quota_gb      = 1
  tags                = local.tags
}

resource "azurerm_application_insights" "reaper" {
  name                = "${local.name}-reaper"
  resource_group_name = azurerm_resource_group.own.name
  location            = var.region
  workspace_id        = azurerm_log_analytics_workspace.own.id
  application_type    = "other"
  sampling_percentage = 100
  tags                = local.tags
}

resource "azurerm_monitor_action_group" "alarms" {
  name                = "${local.name}-alarms"
  short_name          = substr("cd-${var.deployment}", 0, 12)
  resource_group_name = azurerm_resource_group.own.name
  tags                = local.tags

  dynamic "email_receiver" {
    for_each = toset(var.alarm_emails)

    content {
      name                    = email_receiver.value
      email_address           = email_receiver.value
      use_common_alert_schema = true
    }
  }
}

resource "azurerm_monitor_scheduled_query_rules_alert_v2" "reaper_fails" {
  name                 = "${local.name}-reaper-fails"
  description          = "A VM past its hard end could not be ended, or ARM could not be asked: see the function's log"
  resource_group_name  = azurerm_resource_group.own.name
  location             = var.region
  scopes               = [azurerm_application_insights.reaper.id]
  severity             = 0
  evaluation_frequency = "PT5M"
  window_duration      = "PT10M"
  tags                 = local.tags

  criteria {
    query                   = "requests | where operation_Name == 'reaper' and success == false"
    time_aggregation_method = "Count"
    operator                = "GreaterThanOrEqual"
    threshold               = 3
  }

  action {
    action_groups = [azurerm_monitor_action_group.alarms.id]
  }
}

# What is logged is seen some minutes later: a window of five would alarm by itself.
resource "azurerm_monitor_scheduled_query_rules_alert_v2" "reaper_silent" {
  name                 = "${local.name}-reaper-silent"
  description          = "The reaper has not looked for a quarter of an hour: VMs past their hard ends go on"
  resource_group_name  = azurerm_resource_group.own.name
  location             = var.region
  scopes               = [azurerm_application_insights.reaper.id]
  severity             = 0
  evaluation_frequency = "PT5M"
  window_duration      = "PT15M"
  tags                 = local.tags

  criteria {
    query                   = "requests | where operation_Name == 'reaper'"
    time_aggregation_method = "Count"
    operator                = "LessThan"
    threshold               = 1
  }

  action {
    action_groups = [azurerm_monitor_action_group.alarms.id]
  }
}

resource "azurerm_monitor_metric_alert" "control_ill" {
  count               = local.here
  name                = "${local.name}-control-ill"
  description         = "The control VM is not available. VMs go on and end by themselves; nothing new is started"
  resource_group_name = azurerm_resource_group.own.name
  scopes              = [azurerm_linux_virtual_machine.control[0].id]
  severity            = 1
  frequency           = "PT1M"
  window_size         = "PT5M"
  tags                = local.tags

  criteria {
    metric_namespace = "Microsoft.Compute/virtualMachines"
    metric_name      = "VmAvailabilityMetric"
    aggregation      = "Average"
    operator         = "LessThan"
    threshold        = 1
  }

  action {
    action_group_id = azurerm_monitor_action_group.alarms.id
  }
}

# A second net: the subscription's own count of what VMs are billed, hours late and in its own currency. It ends nothing.
resource "azurerm_consumption_budget_resource_group" "month" {
  name              = local.name
  resource_group_id = azurerm_resource_group.vms.id
  amount            = var.month_limit
  time_grain        = "Monthly"

  time_period {
    start_date = formatdate("YYYY-MM-01'T'00:00:00'Z'", timestamp())
  }

  dynamic "notification" {
    for_each = { Actual = 80, Forecasted = 100 }

    content {
      operator       = "GreaterThan"
      threshold      = notification.value
      threshold_type = notification.key
      contact_emails = var.alarm_emails
    }
  }

  # It begins with the month in which it was made.
  lifecycle {
    ignore_changes = [time_period]
  }
}
