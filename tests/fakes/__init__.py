"""Our own fakes of clouds, spoken to over real HTTP by the real SDKs. See README.md for what they model."""
