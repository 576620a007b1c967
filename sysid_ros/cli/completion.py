"""Writes the completion of ``sysid`` for a shell: commands, options, models, payloads and files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sysid_ros.cli.exit_status import ExitStatus, run_command
from sysid_ros.cli.main import COMMANDS, Command
from sysid_ros.cli.parse_others import SHELLS, completion_parser
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.robot_files import available_robots, config_directories
from sysid_ros.space.core.robot import available_free_flyers

shtab = optional_module("shtab")
_MODELS, _PAYLOADS, _FLOATING = "_sysid_models", "_sysid_payloads", "_sysid_floating"
_COMPLETED: Mapping[str, str] = {"model": _MODELS, "robot": _MODELS, "payload": _PAYLOADS, "load": _PAYLOADS}
"""Functions of the shell that complete an option, by its destination."""
_FILES = ("file", "results", "output", "calibration", "report", "check")
"""Words in the destinations of options that take a file or folder as text."""
_PREAMBLE = {
    "bash": """\
_sysid_models() {{ compgen -W "{models}" -- "$1"; compgen -f -X '!*.yaml' -- "$1"; compgen -d -- "$1"; }}
_sysid_floating() {{ compgen -W "{floating}" -- "$1"; compgen -f -X '!*.yaml' -- "$1"; compgen -d -- "$1"; }}
_sysid_payloads() {{ compgen -W "{payloads}" -- "$1"; }}
""",
    "zsh": """\
_sysid_models() {{ _alternative 'models:model:({models})' 'files:settings file:_files -g "*.yaml"' }}
_sysid_floating() {{ _alternative 'models:model:({floating})' 'files:settings file:_files -g "*.yaml"' }}
_sysid_payloads() {{ _values payload {payloads} }}
""",
}


def completion(shell: str) -> str:
    """Return the completion of all commands as a script of a shell."""
    files = [folder / "payloads.yaml" for folder in config_directories() if (folder / "payloads.yaml").is_file()]
    payloads = [name for file in files[:1] for name in read_yaml(file)]
    words = {
        "models": " ".join(available_robots()),
        "floating": " ".join(available_free_flyers()),
        "payloads": " ".join([*payloads, "none"]),
    }
    return str(shtab.complete(whole_parser(), shell, preamble=_PREAMBLE[shell].format(**words)))


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with the parsers of all commands."""
    parser = CommandParser(prog="sysid")
    parser.add_argument("--version", action="store_true", help="tell the version")
    _add_commands(parser, COMMANDS)
    return parser


def _add_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    def build(prog: str, **_: Any) -> argparse.ArgumentParser:
        return _complete(_parser_of(prog, commands[prog.split()[-1]]))

    made: Any = parser.add_subparsers(parser_class=cast(Any, build))
    for name, command in commands.items():
        made.add_parser(name, help=command.summary)


def _parser_of(prog: str, command: Command) -> argparse.ArgumentParser:
    if command.parser is not None:
        return command.parser()
    parser = CommandParser(prog=prog)
    _add_commands(parser, command.commands)
    return parser


def _complete(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Say of each option what completes it: a list, or files."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                _complete(inner)
        elif action.choices is None and (function := _COMPLETED.get(action.dest)):
            function = _FLOATING if parser.prog == "sysid space" and function == _MODELS else function
            action.complete = dict.fromkeys(SHELLS, function)  # type: ignore[attr-defined]  # where shtab looks
        elif action.type is Path or any(word in action.dest for word in _FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""

    def run() -> int:
        print(completion(completion_parser().read(argv).shell), end="")
        return ExitStatus.OK

    return run_command(run)


if __name__ == "__main__":
    sys.exit(main())
