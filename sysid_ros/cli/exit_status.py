"""How the commands end, for scripts that call them."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """How the commands of this package end.

    Attributes:
        meaning: What it means, in a few words.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitStatus:
        """Make a number with its meaning."""
        one = int.__new__(cls, value)
        one._value_, one.meaning = value, meaning
        return one

    OK = 0, "done: identified, proven, written"
    FAILED = (
        1,
        "no result: data contradict the assumptions, a plan is not proven, a goal or a run failed, a payload that was "
        "sent does not read back",
    )
    BAD_INPUT = 2, "an argument or a file cannot be used; nothing was started"
    NODE_DIED = 3, "a process of the suite ended by itself"
    NOT_IDENTIFIED = 4, "data are consistent, but mass, CoM or inertia could not be identified"
    FAULT = 5, "a fault of this program; please report its output"
    STOPPED = 130, "Ctrl-C; what was found until then is kept"


def endings(*statuses: ExitStatus) -> dict[int, str]:
    """Return the exit statuses of a command with their meanings: these, and the ones of all commands."""
    wanted = {*statuses, ExitStatus.OK, ExitStatus.BAD_INPUT, ExitStatus.FAULT, ExitStatus.STOPPED}
    return {int(status): status.meaning for status in ExitStatus if status in wanted}
