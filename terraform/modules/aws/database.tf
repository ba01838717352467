# With database = "managed": PostgreSQL by RDS, reached by the control VM alone. RDS makes its password, keeps it in Secrets
# Manager and changes it every seven days; nobody else knows it, and it is neither in the state of Terraform nor on a disk.

locals {
  managed = var.database == "managed"

  store = local.managed ? templatefile("${path.module}/templates/store.toml.tftpl", {
    host = aws_db_instance.own[0].address
    port = aws_db_instance.own[0].port
    tls  = var.database_certificate == "" ? "sslmode=require" : "sslmode=verify-full&sslrootcert=/etc/cloud-dispatch/database.pem"
    arn  = aws_db_instance.own[0].master_user_secret[0].secret_arn
  }) : ""
}

resource "aws_db_subnet_group" "own" {
  count       = local.managed ? 1 : 0
  name        = local.name
  description = "The database of ${local.name}"
  subnet_ids  = local.subnet_ids
  tags        = local.tags
}

resource "aws_security_group" "database" {
  count       = local.managed ? 1 : 0
  name_prefix = "${local.name}-database-"
  description = "The database: the control VM, and nobody else"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-database" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "database" {
  count                        = local.managed ? 1 : 0
  security_group_id            = aws_security_group.database[0].id
  description                  = "The control VM"
  referenced_security_group_id = aws_security_group.control.id
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
  tags                         = local.tags
}

resource "aws_db_parameter_group" "own" {
  count       = local.managed ? 1 : 0
  name_prefix = "${local.name}-"
  family      = "postgres16"
  description = "TLS, or no connection"
  tags        = local.tags

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_db_instance" "own" {
  #checkov:skip=CKV_AWS_118: what the dispatcher waits for is in its own metrics
  #checkov:skip=CKV_AWS_157: a second one in another zone doubles the price: set database_multi_az where that is worth it
  #checkov:skip=CKV_AWS_161: the dispatcher logs in by a password that RDS keeps and changes
  #checkov:skip=CKV_AWS_293: set database_protected = false before a destroy that is meant
  #checkov:skip=CKV_AWS_353: there is one client, and it measures itself
  #checkov:skip=CKV2_AWS_30: queries hold what tasks are called; the log of errors is enough
  count          = local.managed ? 1 : 0
  identifier     = local.name
  engine         = "postgres"
  engine_version = "16"
  instance_class = var.database_type
  db_name        = "queue"
  username       = "dispatch"
  tags           = merge(local.tags, { Name = local.name })

  manage_master_user_password   = true
  master_user_secret_kms_key_id = aws_kms_key.own.key_id

  allocated_storage     = 20
  max_allocated_storage = 200
  storage_type          = "gp3"
  storage_encrypted     = true
  kms_key_id            = var.state_key

  db_subnet_group_name   = aws_db_subnet_group.own[0].name
  parameter_group_name   = aws_db_parameter_group.own[0].name
  vpc_security_group_ids = [aws_security_group.database[0].id]
  publicly_accessible    = false
  multi_az               = var.database_multi_az

  auto_minor_version_upgrade      = true
  backup_retention_period         = min(var.snapshot_days, 35)
  copy_tags_to_snapshot           = true
  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]

  # Its name is another one each time that all of this is made: a snapshot of the same name would stop the destroying. Its
  # key is none that is made here: it has to be readable when these are gone.
  deletion_protection       = var.database_protected
  delete_automated_backups  = true
  skip_final_snapshot       = !var.database_final_snapshot
  final_snapshot_identifier = var.database_final_snapshot ? "${aws_db_parameter_group.own[0].name}-final" : null

  # It keeps its key, and another one in its place would be empty.
  lifecycle {
    ignore_changes = [kms_key_id]

    postcondition {
      condition     = var.state_key == null || self.kms_key_id == var.state_key
      error_message = "The database has another key than state_key, and a database keeps its key: leave state_key as it was."
    }
  }
}

resource "aws_iam_role_policy" "database" {
  count = local.managed ? 1 : 0
  name  = "database-password"
  role  = aws_iam_role.dispatcher.id

  policy = templatefile("${path.module}/policies/database.json.tftpl", {
    secret = aws_db_instance.own[0].master_user_secret[0].secret_arn
  })
}
