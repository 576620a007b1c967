"""What taking over any real arm has in common: the refusal, and the test of the commands' sign."""

from __future__ import annotations

from collections.abc import Callable

from sysid_ros.drivers.arm import ArmError

REST_SPREAD = 1e-3
"""How much positions of a resting arm may differ [rad]."""
HOLD_DAMPING = 0.25
"""Damping while the arm is tested under torque, in fractions of torque limit over speed limit."""
_PROBE_DISTANCE = 1e-3
"""Motion of the last joint that tells the sign of the commands [rad]."""
_PROBE_TIME = 0.5
"""Time in which the torque of that test rises to its largest value [s]."""


class TakeoverRefused(ArmError):
    """The arm is not taken over; it stays with its own controller.

    Args:
        reason: What does not fit and what to do.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the arm is not taken over: {reason}")


def probe_last_joint(name: str, largest: float, period: float, cycle: Callable[[float], float]) -> None:
    """Lets a torque rise slowly on the last joint until it has moved a little.

    Args:
        name: Name of the joint.
        largest: Largest torque [Nm].
        period: Duration of a cycle [s].
        cycle: Runs one cycle with this torque added to what holds the arm [Nm]; gives the joint's position [rad].

    Raises:
        TakeoverRefused: It does not move, or not the right way.
    """
    start, moved = cycle(0.0), 0.0
    steps = round(_PROBE_TIME / period)
    for step in range(1, steps):
        moved = cycle(largest * step / steps) - start
        if abs(moved) > _PROBE_DISTANCE:
            break
    else:
        raise TakeoverRefused(f"{name} does not move under {largest:.1f} Nm: torques do not act, or it is blocked")
    if moved < 0.0:
        raise TakeoverRefused(f"{name} moves backwards under a positive torque: the sign of the commands is wrong")
