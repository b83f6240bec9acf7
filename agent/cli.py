"""The command line: nothing else parses arguments."""

import argparse
import importlib
import os
import sys
from typing import NoReturn

COMMANDS = {
    "run": "watch this node: the DaemonSet's process",
    "doctor": "can this node run the agent? one line per check",
    "replay": "a recording, or a folder of recorded watches, through the same code as the running agent",
    "lab": "play rolling updates on this machine with the real kernel, before and after the fix",
}
"""Each is a package of that name with a module `command`, imported only when it is called."""


class CommandLine(argparse.ArgumentParser):
    """Says what is wrong in one line; how it is meant to be used is left to --help."""

    def error(self, message: str) -> NoReturn:
        """End with the message and exit code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns its exit code; a wrong flag ends with one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = CommandLine(
        prog="agent", description="Lastcall: the connections that dying Kubernetes pods drop."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in words if word in COMMANDS), None)
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name == chosen:
            module = importlib.import_module(f"agent.{name}.command")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    args = parser.parse_args(words)
    try:
        return int(args.run(args))
    except BrokenPipeError:
        # Whoever read the output has read enough (agent replay ... | head); nothing is left to be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
