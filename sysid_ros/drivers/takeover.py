"""What taking over any real arm has in common: refusals, and the test of the commands' sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array

REST_SPREAD = 1e-3
"""How much positions of a resting arm may differ [rad]."""
HOLD_DAMPING = 0.25
"""Damping while the arm is tested under torque, in fractions of torque limit over speed limit."""
_LARGEST_SHARE = 0.9
"""Largest effort at rest, over the torque limit. What is left is for the error of the effort and for damping."""
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


class HoldSettings(Protocol):
    """What :func:`hold_and_probe` needs to be told.

    Attributes:
        hold_time: How long the arm must stay where it is [s].
        hold_drift: How far it may drift [rad].
        probe_torque: Largest torque of the test of the sign, over the limit of the last joint [-]; 0 leaves it out.
    """

    hold_time: float
    hold_drift: float
    probe_torque: float


def require_holdable(robot: RobotModel, effort: Array) -> None:
    """Refuses an arm that needs nearly all of its torque limit, or more, at rest: under torque control it would sink.

    To be called while something else still holds the arm.

    Args:
        robot: Limits and names.
        effort: Efforts at rest in joint direction, (n,) [Nm].

    Raises:
        TakeoverRefused: Which joints, how much they need, and what to do.
    """
    tau_max, needed = robot.limits.tau_max, np.abs(effort) / _LARGEST_SHARE
    weak = [(robot.joint_names[k], effort[k], tau_max[k], needed[k]) for k in np.flatnonzero(needed > tau_max)]
    if weak:
        needs = "; ".join(f"{name} needs {tau:.2f} Nm at rest, its torque limit is {limit:.2f} Nm"
                          for name, tau, limit, _ in weak)  # fmt: skip
        enough = ", ".join(f"{name} to {np.ceil(10.0 * least) / 10.0:.1f} Nm" for name, _, _, least in weak)
        raise TakeoverRefused(
            f"torque control could not hold it: {needs} (allowed at rest: {100.0 * _LARGEST_SHARE:.0f} % of it). Raise "
            f"torque in the robot file, {enough} or more, if the arm may have that; or choose a posture that needs "
            "less, or a lighter payload"
        )


def hold_and_probe(
    arm: Arm, robot: RobotModel, settings: HoldSettings, state: ArmState, effort: Array, question: str
) -> ArmState:
    """Balances the arm with the torques it was measured to need, damped, and watches that it does what it should.

    First it has to stay. Then a torque that rises slowly on the last joint has to move that joint the right way.

    Args:
        arm: The arm, under torque and paced by its controller, with a state that is not answered yet.
        robot: Limits and names.
        settings: How long, how far, how strong.
        state: That state.
        effort: Efforts at rest in joint direction, (n,) [Nm].
        question: What to ask the user where the arm does not stay.

    Returns:
        The latest state, not answered yet.

    Raises:
        TakeoverRefused: The arm moves where it should not, or not the way it should.
    """
    damping = HOLD_DAMPING * robot.limits.tau_max / robot.limits.v_max
    start, tau_max = np.array(state.q), robot.limits.tau_max

    def cycle(state: ArmState, extra: float) -> ArmState:
        drift = np.abs(state.q - start)
        joint = int(drift.argmax())
        if drift[joint] > settings.hold_drift:
            raise TakeoverRefused(
                f"{robot.joint_names[joint]} moved by {drift[joint]:.4f} rad under the torque that balances it "
                f"(allowed {settings.hold_drift:g} rad): {question}"
            )
        if state.ok:
            tau = effort - damping * state.v
            tau[-1] += extra
            arm.command(np.clip(tau, -tau_max, tau_max))
        return arm.read()

    cycles = round(settings.hold_time / arm.period)
    for _ in range(cycles):
        state = cycle(state, 0.0)
    if not settings.probe_torque:
        return state
    start = np.array(state.q)

    def push(torque: float) -> float:
        nonlocal state
        state = cycle(state, torque)
        return float(state.q[-1])

    probe_last_joint(robot.joint_names[-1], settings.probe_torque * tau_max[-1], arm.period, push)
    for _ in range(cycles):
        state = cycle(state, 0.0)
    return state


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
