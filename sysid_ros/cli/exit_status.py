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
        STOPPED: Ctrl-C.
    """

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NODE_DIED = 3
    NOT_IDENTIFIED = 4
    STOPPED = 130


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
    except KeyboardInterrupt:
        return ExitStatus.STOPPED
