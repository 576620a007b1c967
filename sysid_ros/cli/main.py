"""The command ``sysid``: one door to everything that runs without ``ros2 launch``.

Each command is a module with a function ``main(argv)``; only the one that is called is loaded.
"""

from __future__ import annotations

import difflib
import importlib
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from sysid_ros.cli.exit_status import ExitStatus, run_command
from sysid_ros.core.common.command_line import fill, tell

PACKAGE = "sysid_ros"


@dataclass(frozen=True)
class Command:
    """A command of ``sysid``.

    Attributes:
        summary: What it does, a line.
        module: Module whose ``main(argv)`` it is; None where it only has commands of its own.
        commands: These, by name.
    """

    summary: str
    module: str | None = None
    commands: Mapping[str, Command] = field(default_factory=dict)


EMULATORS: Mapping[str, Command] = MappingProxyType({
    "fri": Command("a KUKA LBR controller with FRI", "sysid_ros.emulation.fri.__main__"),
    "kortex": Command("the base of a Kinova Gen3 with Kortex", "sysid_ros.emulation.kortex.__main__"),
    "ros2_control": Command("an arm under ros2_control", "sysid_ros.nodes.ros2_control_emulator"),
    "ur": Command("the payload of a controller of Universal Robots", "sysid_ros.emulation.universal_robots"),
})  # fmt: skip
"""Other ends of a connection, for the drivers of this package and for any other client."""
PAPERS: Mapping[str, Command] = MappingProxyType({
    "safe-id": Command("eleven methods that place unknown dumbbells (SAFE-ID)", "sysid_ros.cli.papers_safe_id"),
    "sva": Command("online model and computed torque gated by R^2 (SVA)", "sysid_ros.cli.papers_sva"),
})  # fmt: skip
"""Experiments of the papers in simulation."""
COMMANDS: Mapping[str, Command] = MappingProxyType({
    "demo": Command("identify an unknown payload on a simulated arm", "sysid_ros.cli.demo"),
    "identify": Command("identify what an arm holds: simulated, emulated or real", "sysid_ros.cli.identify"),
    "offline": Command("identify from a recording: a bag, a table, or one of this suite", "sysid_ros.cli.offline"),
    "report": Command("make report and payload files again, from a recording", "sysid_ros.cli.report"),
    "apply": Command("give the payload of a result to a running system", "sysid_ros.cli.apply"),
    "import": Command("turn a bag or another recording into a table with SI units", "sysid_ros.cli.import_recording"),
    "new-robot": Command("write the settings of any arm from its URDF", "sysid_ros.cli.new_robot"),
    "calibrate": Command("calibrate an arm, or its sensors, from recordings", "sysid_ros.cli.calibrate"),
    "identifiability": Command("tell which parameters can be known, at all or here", "sysid_ros.cli.identifiability"),
    "verify": Command("prove all certified plans of a recording again", "sysid_ros.cli.verify"),
    "space": Command("identify a free-flying robot", "sysid_ros.cli.space"),
    "papers": Command("repeat experiments of the papers in simulation", commands=PAPERS),
    "emulate": Command("run an emulated controller", commands=EMULATORS),
    "completion": Command("complete commands and options in bash or zsh", "sysid_ros.cli.completion"),
})  # fmt: skip
"""Every command of ``sysid``."""


def describe(name: str, commands: Mapping[str, Command]) -> str:
    """Return the help of a command that has commands of its own.

    Args:
        name: The command as it is typed.
        commands: Its commands.
    """
    width, columns = max(map(len, commands)), shutil.get_terminal_size().columns - 2
    lines = [f"  {command:{width}}  {commands[command].summary}" for command in commands]
    parts = [
        f"usage: {name} COMMAND [options]",
        "\n".join(lines),
        fill(f"`{name} COMMAND --help` tells options, examples and exit statuses of each.", columns),
    ]
    if commands is COMMANDS:
        codes = "\n".join(f"  {status.value:<3}  {status.meaning}" for status in ExitStatus)
        codes = fill(codes, columns)
        parts += ["`sysid --version` tells the version.", f"exit status:\n{codes}"]
    return "\n\n".join(parts)


TRACEBACK = "SYSID_ROS_TRACEBACK"
"""Environment variable with which faults of the program are told in full."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`; tell any error in one sentence."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return run_command(lambda: _run(words))
    except BrokenPipeError:  # whoever read the output has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - Python flushes it at its end
        return ExitStatus.STOPPED
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}"
        tell(
            "error: ",
            f"a fault of sysid_ros itself, {type(error).__name__} in {place}: {error}\n"
            f"Please report it with the output of the same command after: export {TRACEBACK}=1",
        )
        return ExitStatus.FAULT


def _run(words: list[str]) -> int:
    name, commands = "sysid", COMMANDS
    if words == ["--version"]:
        print(f"sysid_ros {version(PACKAGE)}")
        return ExitStatus.OK
    while True:
        word = words.pop(0) if words else None
        if word in (None, "-h", "--help"):
            print(describe(name, commands))
            return ExitStatus.OK if word else ExitStatus.BAD_INPUT
        if word not in commands:
            near = difflib.get_close_matches(word, commands, 1)
            hint = f" (did you mean {name} {near[0]}?)" if near else ""
            tell("error: ", f"'{word}' is no command of {name}; it has {', '.join(commands)}{hint}")
            return ExitStatus.BAD_INPUT
        name, command = f"{name} {word}", commands[word]
        if command.module is not None:
            return int(importlib.import_module(command.module).main(words))
        commands = command.commands


if __name__ == "__main__":
    sys.exit(main())
