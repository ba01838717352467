"""The SPI that drivers implement and the wrappers around any driver. Knows the domain only."""
