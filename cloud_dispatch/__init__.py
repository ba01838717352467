"""cloud-dispatch: rents the cheapest cloud machines that can do a queue of work, and gives them back."""


def __getattr__(name: str) -> str:
    """`__version__` is that of the distribution that is installed, which has it from its tag. Looked up when it is
    asked for: few do, and nobody should wait for it at the start. Once: it is read from a file."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("cloud-dispatch")
    except PackageNotFoundError:  # its sources alone, beside somebody's program
        found = "0+unknown"
    globals()[name] = found
    return found
