"""How the commands end, for scripts that call them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType

from sysid_ros.core.common.errors import SysidError


class ExitStatus(IntEnum):
    """How the commands of this package end; :attr:`meaning` says what each is."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NODE_DIED = 3
    NOT_IDENTIFIED = 4
    FAULT = 5
    STOPPED = 130

    @property
    def meaning(self) -> str:
        """What it means, in a few words."""
        return _MEANING[self]


_MEANING: Mapping[ExitStatus, str] = MappingProxyType({
    ExitStatus.OK: "done: identified, proven, written",
    ExitStatus.FAILED: "no result: data contradict the assumptions, a plan is not proven, a goal or a run failed, "
    "a payload that was sent does not read back",
    ExitStatus.BAD_INPUT: "an argument or a file cannot be used; nothing was started",
    ExitStatus.NODE_DIED: "a process of the suite ended by itself",
    ExitStatus.NOT_IDENTIFIED: "nothing contradicts, but mass, CoM or inertia is not identified",
    ExitStatus.FAULT: "a fault of this program; what it printed belongs into a report",
    ExitStatus.STOPPED: "Ctrl-C; what was found until then is kept",
})  # fmt: skip


def endings(*statuses: ExitStatus) -> dict[int, str]:
    """Return the exit statuses of a command with their meanings: these, and those that every command has."""
    wanted = {*statuses, ExitStatus.OK, ExitStatus.BAD_INPUT, ExitStatus.FAULT, ExitStatus.STOPPED}
    return {int(status): status.meaning for status in ExitStatus if status in wanted}


EXTRAS = {
    "casadi": "planning", "mujoco": "sim", "rclpy": "ros", "sysid_msgs": "ros", "trimesh": "meshes",
    "distributed": "cluster",
}  # fmt: skip
"""Extra of the package that brings a module."""


def describe_missing(error: ModuleNotFoundError) -> str:
    """Say which module is missing, and how to install it."""
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{name} is not installed, which this takes; install it with: pip install 'sysid_ros[{EXTRAS[name]}]'"
    return f"the module {error.name} is missing; install the package again: pip install sysid_ros"


def run_command(work: Callable[[], int], failures: tuple[type[SysidError], ...] = ()) -> int:
    """Run a command and return its exit status; tell an error in one sentence.

    Args:
        work: The command.
        failures: Errors that say that there is no result; all others are about the input.
    """
    try:
        return work()
    except SysidError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitStatus.FAILED if isinstance(error, failures) else ExitStatus.BAD_INPUT
    except ModuleNotFoundError as error:
        print(f"error: {describe_missing(error)}", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    except KeyboardInterrupt:
        return ExitStatus.STOPPED
