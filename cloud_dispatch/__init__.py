"""cloud-dispatch: rents the cheapest cloud machines that can do a queue of work, and gives them back."""

__version__ = "0.2.0"
