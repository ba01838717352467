# Who is told, and of what: a reaper that fails or is not called, a control VM that is ill, money.

resource "aws_sns_topic" "alarms" {
  name              = "${local.name}-alarms"
  kms_master_key_id = aws_kms_key.own.id
  tags              = local.tags
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn

  policy = templatefile("${path.module}/policies/topic.json.tftpl", {
    topic   = aws_sns_topic.alarms.arn
    account = local.account
  })
}

resource "aws_sns_topic_subscription" "alarms" {
  for_each  = toset(var.alarm_emails)
  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_metric_alarm" "reaper_fails" {
  alarm_name          = "${local.name}-reaper-fails"
  alarm_description   = "A VM past its hard end could not be ended, or EC2 could not be asked: see the function's log"
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.reaper.function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "reaper_silent" {
  alarm_name          = "${local.name}-reaper-silent"
  alarm_description   = "Nobody has called the reaper for five minutes: VMs past their hard ends go on"
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  dimensions          = { FunctionName = aws_lambda_function.reaper.function_name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "control_ill" {
  alarm_name          = "${local.name}-control-ill"
  alarm_description   = "The control VM does not pass its checks. VMs go on and end by themselves; nothing new is started"
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { InstanceId = aws_instance.control.id }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

# A second net: the account's own count of what it is billed, hours late. It ends nothing.
resource "aws_budgets_budget" "month" {
  name         = local.name
  budget_type  = "COST"
  limit_amount = tostring(var.month_limit)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"
  tags         = local.tags

  dynamic "notification" {
    for_each = { ACTUAL = 80, FORECASTED = 100 }

    content {
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value
      threshold_type             = "PERCENTAGE"
      notification_type          = notification.key
      subscriber_email_addresses = var.alarm_emails
    }
  }
}
