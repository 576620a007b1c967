"""How the commands end, for scripts that call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType

from sysid_ros.core.common.command_line import tell
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import describe_missing


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


def run_command(work: Callable[[], int], failures: tuple[type[SysidError], ...] = ()) -> int:
    """Run a command and return its exit status; tell an error in one sentence.

    Args:
        work: The command.
        failures: Errors that say that there is no result; all others are about the input.
    """
    try:
        return work()
    except SysidError as error:
        tell("error: ", str(error))
        return ExitStatus.FAILED if isinstance(error, failures) else ExitStatus.BAD_INPUT
    except ModuleNotFoundError as error:
        tell("error: ", describe_missing(error))
        return ExitStatus.BAD_INPUT
    except KeyboardInterrupt:
        return ExitStatus.STOPPED
