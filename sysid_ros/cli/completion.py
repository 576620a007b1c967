"""Completes ``sysid`` in a shell: commands, options, choices and files by argcomplete; arms and payloads by name."""

from __future__ import annotations

import argparse

import argcomplete

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.robot_files import available_robots, config_directories

_settings_files = argcomplete.FilesCompleter(("yaml",))


def _payloads(**_: object) -> list[str]:
    files = [folder / "payloads.yaml" for folder in config_directories() if (folder / "payloads.yaml").is_file()]
    return [*(name for file in files[:1] for name in read_yaml(file)), "none"]


def _arms(prefix: str, **_: object) -> list[str]:
    return [*available_robots(), *_settings_files(prefix)]


def _free_flyers(prefix: str, **_: object) -> list[str]:
    from sysid_ros.space.core.robot import available_free_flyers  # takes a second to load

    return [*available_free_flyers(), *_settings_files(prefix)]


def complete(parser: argparse.ArgumentParser) -> None:
    """Print what may follow the words in the environment of a shell that completes them, and end the process."""
    add_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def add_completers(parser: argparse.ArgumentParser) -> None:
    """Say of each option that takes the name of an arm or of a payload what completes it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                add_completers(inner)
        elif action.dest in ("model", "robot"):
            is_space = parser.prog == "sysid space"
            action.completer = _free_flyers if is_space else _arms  # type: ignore[attr-defined]  # where argcomplete looks
        elif action.dest in ("payload", "load"):
            action.completer = _payloads  # type: ignore[attr-defined]


def run(options: argparse.Namespace) -> int:
    """Print the script with which a shell completes ``sysid``; return the exit status."""
    print(argcomplete.shellcode(["sysid"], shell=options.shell))
    return ExitStatus.OK
