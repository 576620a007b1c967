"""The command ``sysid``: one door to everything that runs without ``ros2 launch``.

Each command is a parser, and a module with a function ``main(argv)``. Parsers load nothing that takes long: help, and
what is refused, come before the module of the command that is called, and no other module, is loaded.
"""

from __future__ import annotations

import difflib
import importlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from sysid_ros.cli.exit_status import ExitStatus, run_command
from sysid_ros.cli.parse_calibration import calibrate_parser
from sysid_ros.cli.parse_others import completion_parser, safe_id_parser, sva_parser
from sysid_ros.cli.parse_recordings import (
    identifiability_parser,
    import_parser,
    new_robot_parser,
    offline_parser,
    report_parser,
    verify_parser,
)
from sysid_ros.cli.parse_suites import apply_parser, demo_parser, identify_parser, space_parser, tare_parser
from sysid_ros.core.common.command_line import CommandParser, fill, tell
from sysid_ros.emulators.arguments import fri_parser, kortex_parser, ros2_control_parser, ur_parser

PACKAGE = "sysid_ros"


@dataclass(frozen=True)
class Command:
    """A command of ``sysid``.

    Attributes:
        summary: What it does, a line.
        module: Module of this package whose ``main(argv)`` it is; None where it only has commands of its own.
        parser: Makes its parser; None likewise.
        commands: These, by name.
    """

    summary: str
    module: str | None = None
    parser: Callable[[], CommandParser] | None = None
    commands: Mapping[str, Command] = field(default_factory=dict)


EMULATORS: Mapping[str, Command] = MappingProxyType({
    "fri": Command("a KUKA LBR controller with FRI", "emulators.fri.__main__", fri_parser),
    "kortex": Command("the base of a Kinova Gen3 with Kortex", "emulators.kortex.__main__", kortex_parser),
    "ros2_control": Command("an arm under ros2_control", "emulators.nodes.ros2_control_emulator", ros2_control_parser),
    "ur": Command("the payload of a controller of Universal Robots", "emulators.universal_robots", ur_parser),
})  # fmt: skip
"""Other ends of a connection, for the drivers of this package and for any other client."""
PAPERS: Mapping[str, Command] = MappingProxyType({
    "safe-id": Command("eleven methods that place unknown dumbbells (SAFE-ID)", "cli.papers_safe_id", safe_id_parser),
    "sva": Command("online model and computed torque gated by R^2 (SVA)", "cli.papers_sva", sva_parser),
})  # fmt: skip
"""Experiments of the papers in simulation."""
COMMANDS: Mapping[str, Command] = MappingProxyType({
    "demo": Command("identify an unknown payload on a simulated arm", "cli.demo", demo_parser),
    "identify": Command("identify what an arm holds: simulated, emulated or real", "cli.identify", identify_parser),
    "tare": Command("move an arm with the empty hand first, for narrower bounds", "cli.tare", tare_parser),
    "offline": Command(
        "identify from a recording: a bag, a table, or one of this suite", "cli.offline", offline_parser
    ),
    "report": Command("make report and payload files again, from a recording", "cli.report", report_parser),
    "apply": Command("give the payload of a result to a running system", "cli.apply", apply_parser),
    "import": Command(
        "turn a bag or another recording into a table with SI units", "cli.import_recording", import_parser
    ),
    "new-robot": Command("write the settings of any arm from its URDF", "cli.new_robot", new_robot_parser),
    "calibrate": Command("calibrate an arm, or its sensors, from recordings", "cli.calibrate", calibrate_parser),
    "identifiability": Command(
        "tell which parameters can be known, at all or here", "cli.identifiability", identifiability_parser
    ),
    "verify": Command("prove all certified plans of a recording again", "cli.verify", verify_parser),
    "space": Command("identify a free-flying robot", "cli.space", space_parser),
    "papers": Command("repeat experiments of the papers in simulation", commands=PAPERS),
    "emulate": Command("run an emulated controller", commands=EMULATORS),
    "completion": Command("complete commands and options in bash or zsh", "cli.completion", completion_parser),
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
        from importlib.metadata import version

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
        if command.module is not None and command.parser is not None:
            command.parser().read(words)  # help, and what is refused, before anything that takes long is loaded
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                os.environ.setdefault(name, "1")  # matrices are small: on a busy machine threads wait for each other
            return int(importlib.import_module(f"{PACKAGE}.{command.module}").main(words))
        commands = command.commands


if __name__ == "__main__":
    sys.exit(main())
