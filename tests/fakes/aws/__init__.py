"""What the fakes of AWS services share: the botocore models, their protocols, signatures and errors."""
