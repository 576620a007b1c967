"""Taking a resting arm over, step by step; any mismatch ends it before a motion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import ControllerInfo, JointStream, mean_period
from sysid_ros.drivers.takeover import TakeoverRefused, check_gravity, find_motion

_FEWEST = 10


def require_rate(stamps_ns: list[int], settings: Ros2ControlSettings, name: str) -> float:
    """Compare stamps of consecutive states [ns] of a named source with the period that is set; return the mean one [s].

    Raises:
        TakeoverRefused: States come slower or faster, or too many are missing; then a retry may succeed.
    """
    if len(stamps_ns) < _FEWEST:
        raise TakeoverRefused(f"{name}: only {len(stamps_ns)} states came; {_FEWEST} are needed to know their rate")
    period, nominal = mean_period(stamps_ns), settings.period
    if abs(period - nominal) > settings.rate_tolerance * nominal:
        raise TakeoverRefused(
            f"{name} comes at {1.0 / period:.4g} Hz, update_rate is {1.0 / nominal:.4g} Hz (allowed difference "
            f"{100.0 * settings.rate_tolerance:g} %); set update_rate to the rate of the controller manager"
        )
    steps = np.round(np.diff(stamps_ns) * 1e-9 / nominal)
    missing = float(np.maximum(steps - 1.0, 0.0).sum())
    share = missing / (missing + steps.size)
    if share > settings.missing_share:
        raise TakeoverRefused(
            f"{name}: {100.0 * share:.1f} % of the states are missing (allowed {100.0 * settings.missing_share:g} %)",
            may_pass=True,
        )
    return period


@dataclass(frozen=True)
class RestMeasurement:
    """Mean positions (n,) [rad], their spread, and mean efforts in joint direction (n,) [Nm], before the first command.

    The mean period is in [s].
    """

    q: Array
    tau: Array
    spread: Array
    period: float


def measure_rest(
    stream: JointStream,
    settings: Ros2ControlSettings,
    robot: RobotModel,
    name: str,
    on_state: Callable[[ArmState], None] = lambda _: None,
) -> RestMeasurement:
    """Measure the arm for a while; again where states were missing, as while other programs start.

    Raises:
        TakeoverRefused: No states come, or without needed fields, or at another rate.
    """
    count = max(20, round(settings.rest_time / settings.period))

    def measure() -> RestMeasurement:
        states: list[ArmState] = []
        while len(states) < count:
            state = stream.next(settings.session_timeout)
            if state is not None:
                states.append(state)
                on_state(state)
            elif stream.age > settings.connect_timeout:
                raise TakeoverRefused(
                    f"{name}: {len(states)} of {count} states came, then none for {settings.connect_timeout:g} s "
                    f"({stream.describe_timeout()})"
                )
        q, tau = np.array([state.q for state in states]), np.array([state.tau for state in states])
        is_bad = ~np.isfinite(tau).all(axis=0)
        if is_bad.any():
            joint = robot.joint_names[int(is_bad.argmax())]
            raise TakeoverRefused(f"the effort of {joint} is not a number; identification needs measured efforts")
        period = require_rate([state.stamp_ns for state in states], settings, name)
        return RestMeasurement(q.mean(axis=0), tau.mean(axis=0), np.ptp(q, axis=0), period)

    deadline = stream.link.now() + settings.connect_timeout
    while True:
        try:
            return measure()
        except TakeoverRefused as refused:
            if not refused.may_pass or stream.link.now() > deadline:
                raise


def judge_gravity(rest: RestMeasurement, robot: RobotModel) -> str:
    """Run the static gravity check of an arm that is never commanded; return "passed", or why it is inconclusive.

    Raises:
        TakeoverRefused: The arm rests, and efforts and model contradict each other: bounds would be wrong.
    """
    if find_motion(robot, rest.spread, 0.0) is not None:
        return "not done, the arm moves"
    doubt = check_gravity(robot, rest.q, rest.tau)
    return f"not conclusive: {doubt}" if doubt else "passed"


def order_of_commands(robot: RobotModel, given: tuple[str, ...], told: ControllerInfo | None) -> tuple[int, ...]:
    """Return the index of the model's joint for each entry of a command, (n,).

    ``given`` are joints in the order of the commands, as set by the user; empty for none. ``told`` is the controller's
    order; None if it does not answer.

    Raises:
        TakeoverRefused: The order is unknown, the two disagree, or it is not an order of exactly the model's joints.
    """
    if told is not None and told.interface != "effort":
        raise TakeoverRefused(
            f"the controller writes to the interface '{told.interface}', not to 'effort'; torques must not go there"
        )
    if told is not None and given and told.joints != given:
        raise TakeoverRefused(
            f"the controller takes commands in the order {', '.join(told.joints)}, command_joints says "
            f"{', '.join(given)}"
        )
    joints = told.joints if told is not None else given
    if not joints:
        raise TakeoverRefused(
            "the order of the commands is not known: the effort controller does not answer to get_parameters; set "
            "command_joints to its parameter 'joints'"
        )
    if sorted(joints) != sorted(robot.joint_names):
        raise TakeoverRefused(
            f"commands are for the joints {', '.join(joints)}; the model has {', '.join(robot.joint_names)}"
        )
    return tuple(robot.joint_names.index(name) for name in joints)
