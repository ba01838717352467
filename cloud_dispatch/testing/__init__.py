"""Public conformance suites for drivers and stores, this project's and third parties'."""
