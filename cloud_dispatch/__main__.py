"""`python -m cloud_dispatch` is the command `cloud-dispatch`."""

from cloud_dispatch.cli.main import main

if __name__ == "__main__":
    main()
