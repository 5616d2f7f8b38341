"""`python -m dryrun` is the command."""

from .door.command import command

if __name__ == "__main__":
    command()
