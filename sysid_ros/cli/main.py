"""The command ``sysid``: one door to everything that runs without ``ros2 launch``.

Each command is a parser, and a module with a function ``run(options)``. Parsers load nothing that takes long: help
and refusals come before the module of the command is loaded, and no other module is. ``run`` returns the exit status,
and raises a ``SysidError`` where its input cannot be used.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.parse_others import completion_parser, excite_parser, safe_id_parser, sva_parser
from sysid_ros.cli.parse_recordings import (
    calibrate_parser,
    identifiability_parser,
    import_parser,
    new_robot_parser,
    offline_parser,
    report_parser,
    verify_parser,
)
from sysid_ros.cli.parse_suites import (
    apply_parser,
    check_load_parser,
    demo_parser,
    how_heavy_parser,
    identify_parser,
    space_parser,
    tare_parser,
    weigh_parser,
)
from sysid_ros.core.common.command_line import CommandParser, tell
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import describe_missing
from sysid_ros.emulators.arguments import fri_parser, kortex_parser, ros2_control_parser, ur_parser

PACKAGE = "sysid_ros"
FIRST_STEPS = """\
Identifies what a robot arm holds, with guaranteed bounds. Five things to begin with:

  sysid demo                                    identify a payload on a simulated arm
  sysid offline BAG --model ur5e                identify a payload from a recording
  sysid identifiability --model ur5e            list the parameters that can be known
  sysid new-robot ARM.urdf                      write the settings of another arm
  sysid identify --mode hardware --robot-ip IP  identify what a real arm holds"""
TRACEBACK = "SYSID_ROS_TRACEBACK"
"""Environment variable with which faults of the program are printed in full."""
COMPLETING = "_ARGCOMPLETE"
"""Environment variable that a shell sets where it wants words instead of work."""


@dataclass(frozen=True)
class Command:
    """A command of ``sysid``.

    Attributes:
        summary: What it does, a line.
        module: Module of this package whose ``run(options)`` it is, or ``module:function``; empty where it only has
            commands of its own.
        parser: Makes its parser; None likewise.
        commands: These, by name.
    """

    summary: str
    module: str = ""
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
    "safe-id": Command("eleven methods that place unknown dumbbells (SAFE-ID)", "cli.papers", safe_id_parser),
    "excite": Command("exciting motions, torques of a real arm, guiding (EXCITE)", "cli.papers", excite_parser),
    "sva": Command("online model and computed torque gated by R^2 (SVA)", "cli.papers", sva_parser),
})  # fmt: skip
"""Experiments of the papers."""
COMMANDS: Mapping[str, Command] = MappingProxyType({
    "demo": Command("identify an unknown payload on a simulated arm", "cli.identify", demo_parser),
    "identify": Command("identify what an arm holds: simulated, emulated or real", "cli.identify", identify_parser),
    "weigh": Command("weigh the payload of an arm by slow motions", "cli.identify", weigh_parser),
    "tare": Command("move an arm with the empty hand first, for narrower bounds", "cli.identify:run_tare", tare_parser),
    "offline": Command("identify from a recording: a bag, a table, or a run", "cli.offline", offline_parser),
    "report": Command("make report and payload files again, from a recording", "cli.offline:run_report", report_parser),
    "apply": Command("give the payload of a result to a running system", "cli.apply", apply_parser),
    "check-load": Command("check the load entered in a controller", "cli.loads:check_load", check_load_parser),
    "how-heavy": Command("find the heaviest object a motion is certified for", "cli.loads:how_heavy", how_heavy_parser),
    "import": Command("turn any recording into a table with SI units", "cli.offline:run_import", import_parser),
    "new-robot": Command("write the settings of any arm from its URDF", "cli.new_robot", new_robot_parser),
    "calibrate": Command("calibrate an arm, or its sensors, from recordings", "cli.calibrate", calibrate_parser),
    "identifiability": Command("list what can be known of an arm", "cli.identifiability", identifiability_parser),
    "verify": Command("re-verify the certified plans of a recording", "cli.verify", verify_parser),
    "space": Command("identify a free-flying robot", "cli.space", space_parser),
    "papers": Command("repeat experiments of the papers", commands=PAPERS),
    "emulate": Command("run an emulated controller", commands=EMULATORS),
    "completion": Command("complete commands and options in bash or zsh", "cli.completion", completion_parser),
})  # fmt: skip
"""Every command of ``sysid``."""


def build_parser(words: Collection[str] | None = None) -> CommandParser:
    """Return the parser of ``sysid``.

    Args:
        words: What was typed: only commands among it get their options, which take time to make; None makes all.
    """
    parser = CommandParser(prog="sysid", description=FIRST_STEPS, endings={int(one): one.meaning for one in ExitStatus})
    parser.add_argument("--version", action="store_true", help="print the version")
    _add_commands(parser, COMMANDS, words)
    return parser


def _add_commands(parser: CommandParser, commands: Mapping[str, Command], words: Collection[str] | None) -> None:
    def build(prog: str, **_: Any) -> CommandParser:
        name = prog.split()[-1]
        command = commands[name]
        if command.parser is None or not (words is None or name in words):
            made = CommandParser(prog=prog, description=f"{command.summary[0].upper()}{command.summary[1:]}.")
        else:
            made = command.parser()
        made.set_defaults(module=command.module)
        if command.commands:
            _add_commands(made, command.commands, words)
        return made

    group: Any = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=cast(Any, build)
    )
    for name, command in commands.items():
        group.add_parser(name, help=command.summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`; print any error as one sentence."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(_run(words))
    except SysidError as error:
        tell("error: ", str(error))
        return ExitStatus.FAILED if error.is_outcome else ExitStatus.BAD_INPUT
    except ModuleNotFoundError as error:
        tell("error: ", describe_missing(error))
        return ExitStatus.BAD_INPUT
    except KeyboardInterrupt:
        return ExitStatus.STOPPED
    except BrokenPipeError:  # the reader of the output has gone
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
    if COMPLETING in os.environ:
        from sysid_ros.cli.completion import complete  # ends the process

        complete(build_parser(os.environ.get("COMP_LINE", "").split()))
    if not words:
        print(f"{FIRST_STEPS}\n\n`sysid --help` lists all commands, `sysid COMMAND --help` the options of one.")
        return ExitStatus.BAD_INPUT
    if words == ["--version"]:
        from importlib.metadata import version

        print(f"sysid_ros {version(PACKAGE)}")
        return ExitStatus.OK
    options = build_parser(words).read(words)  # help and refusals, before anything that takes long is loaded
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # matrices are small: on a busy machine threads wait for each other
    module, _, function = vars(options).pop("module").partition(":")
    return int(getattr(importlib.import_module(f"{PACKAGE}.{module}"), function or "run")(options))


if __name__ == "__main__":
    sys.exit(main())
