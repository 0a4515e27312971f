"""`python -m fdwait COMMAND`."""

import argparse
import sys
from importlib.metadata import version

from . import _demo, _run_command

COMMANDS = (_run_command, _demo)  # each module: NAME, HELP, add_arguments(parser), main(arguments) -> exit status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fdwait",
        description="Wait on file descriptors of any number, and lose nothing that was written to them.",
    )
    parser.add_argument("--version", action="version", version=f"fdwait {version('fdwait')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(main=module.main)
    options = parser.parse_args(argv)
    return int(options.main(options))


if __name__ == "__main__":
    sys.exit(main())
