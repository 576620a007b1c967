"""How the commands end, for scripts that call them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum

from sysid_ros.core.common.errors import SysidError


class ExitStatus(IntEnum):
    """How the commands of this package end.

    Attributes:
        OK: Done: identified, proven, shown.
        FAILED: No result: the data contradict the assumptions, a plan is not proven, or a goal failed.
        BAD_INPUT: An argument or a file cannot be used; nothing was started.
        NOT_IDENTIFIED: Nothing contradicts, but the data know mass, CoM or inertia no better than the prior.
        NODE_DIED: A process of the suite ended by itself.
        FAULT: A fault of this package itself; what it printed belongs into a report.
        STOPPED: Ctrl-C.
    """

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NODE_DIED = 3
    NOT_IDENTIFIED = 4
    FAULT = 5
    STOPPED = 130


EXTRAS = {"mujoco": "sim", "rclpy": "ros", "sysid_msgs": "ros", "trimesh": "meshes", "distributed": "cluster"}
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
