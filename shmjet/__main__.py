"""`python -m shmjet` is the command line `shmjet`."""

from shmjet.cli.main import main

if __name__ == "__main__":
    main()
