# A dispatcher on AWS: its control VM's role is taken for the dispatcher's identity here, by what AWS signs of it. There is
# no secret.

# The subject is the role's ARN, as AWS writes it into what it signs; the audience is what Azure wants of every issuer, and
# what the driver has AWS sign for. By parent_id, which every version 4 of the provider takes.
resource "azurerm_federated_identity_credential" "dispatcher" {
  count               = local.federated ? 1 : 0
  name                = "dispatcher"
  resource_group_name = azurerm_resource_group.own.name
  parent_id           = azurerm_user_assigned_identity.dispatcher[0].id
  audience            = ["api://AzureADTokenExchange"]
  issuer              = var.dispatcher.aws_issuer
  subject             = var.dispatcher.aws_role
}
