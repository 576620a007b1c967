"""Checks before and while an arm is taken over: static gravity, torque reserve, sign of the commands.

At rest the effort lies in ``g(q, theta, payload) + beta`` for some parameters of the robot's boxes, give or take the
sensor's error and, on the motor side of a gear, Coulomb friction. Gravity is linear in the parameters, so this interval
is exact. An arm outside it has another payload, mount, zero of its sensors or sign than its settings say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array, ConnectionSettings

_SLACK = 1e-9


class TakeoverRefused(ArmError):
    """The arm is not taken over; it stays with its own controller. ``may_pass``: a retry may succeed."""

    def __init__(self, reason: str, may_pass: bool = False):
        self.reason, self.may_pass = reason, may_pass
        super().__init__(f"the arm is not taken over: {reason}")


def static_effort_interval(robot: RobotModel, q: Array) -> tuple[Array, Array]:
    """Return the lower and upper true efforts, (n,) [Nm], of an arm at rest at ``q`` (n,) [rad].

    They hold for all parameters and payloads in the robot's boxes.
    """
    model = robot.pin_model
    zero = np.zeros(robot.n)
    regressor = pin.computeJointTorqueRegressor(model, model.createData(), q, zero, zero)
    arm, payload = robot.theta_box, robot.payload_prior.box
    center = regressor @ arm.center[: 10 * robot.n] + regressor[:, -10:] @ payload.center
    radius = np.abs(regressor) @ arm.radius[: 10 * robot.n] + np.abs(regressor[:, -10:]) @ payload.radius
    coulomb, _, _, offset = robot.friction(arm.center).T
    coulomb_radius, _, _, offset_radius = robot.friction(arm.radius).T
    center, radius = center + offset, radius + offset_radius
    if robot.sensors.effort_meaning.has_friction:
        radius = radius + coulomb + coulomb_radius
    return center - radius, center + radius


def check_gravity(robot: RobotModel, q: Array, tau: Array) -> str:
    """Compare the mean efforts in joint direction, (n,) [Nm], of an arm that rests at ``q`` (n,) [rad] with its model.

    Returns:
        Why this posture does not show the sign of the efforts; empty where it does.

    Raises:
        TakeoverRefused: An effort is outside its interval.
    """
    sensors = robot.sensors
    lower, upper = static_effort_interval(robot, q)
    # |error| <= rho |true| + a gives |error| <= (rho |measured| + a) / (1 - rho)
    error = (sensors.effort_relative_error * np.abs(tau) + sensors.lasting_error) / (
        1.0 - sensors.effort_relative_error
    ) + _SLACK
    excess = np.maximum(lower - error - tau, tau - upper - error)
    reversed_excess = np.maximum(lower - error + tau, -tau - upper - error)
    joint = int(excess.argmax())
    if excess[joint] > 0.0:
        hint = "payload, mount, tool or torque offsets are not as configured"
        if reversed_excess.max() <= 0.0:
            hint = "with the opposite sign all joints would agree: check sensors.effort_sign"
        raise TakeoverRefused(
            f"static gravity check: {robot.joint_names[joint]} measures {tau[joint]:.2f} Nm at rest, its model allows "
            f"{lower[joint]:.2f} to {upper[joint]:.2f} Nm (+- {error[joint]:.2f} Nm of the sensor); {hint}"
        )
    if reversed_excess.max() > 0.0:
        return ""
    heaviest = int(np.abs(tau).argmax())
    return (
        f"no joint carries enough in this posture to show the sign of the torques ({robot.joint_names[heaviest]}, "
        f"the most loaded, {tau[heaviest]:.2f} Nm); stretch the arm out and try again"
    )


_REST_SPREAD = 1e-3
"""How much positions of a resting arm may differ [rad]."""
_FEWEST = 10
"""Measurements of a resting arm that are averaged at least."""
_HOLD_DAMPING = 0.25
"""Damping while the arm is tested under torque, in fractions of torque limit over speed limit."""
_LARGEST_SHARE = 0.9
"""Largest effort at rest, over the torque that may be held. The rest is for the error of the effort and for damping."""
_PROBE_DISTANCE = 1e-3
"""Motion of the last joint that shows the sign of the commands [rad]."""
_PROBE_TIME = 0.5
"""Time in which the torque of that test rises to its largest value [s]."""


class RestMonitor:
    """The latest measurements of an arm under another controller, which has to rest for some seconds [s]."""

    def __init__(self, robot: RobotModel, seconds: float, period: float):
        self._robot, self._period = robot, period
        length = max(_FEWEST, round(seconds / period))
        self._positions: deque[Array] = deque(maxlen=length)
        self._efforts: deque[Array] = deque(maxlen=length)

    def add(self, q: Array, tau: Array) -> bool:
        """Add positions (n,) [rad] and efforts (n,) [Nm] in joint direction; return whether the rest is long enough."""
        self._positions.append(q)
        self._efforts.append(tau)
        return self.is_full and self.find_motion() is None

    @property
    def is_full(self) -> bool:
        """Whether there are measurements of the whole time."""
        return len(self._positions) == self._positions.maxlen

    def find_motion(self) -> str | None:
        """Return which joint moves, and by how much; None if the arm rests."""
        seconds = len(self._positions) * self._period
        return find_motion(self._robot, np.ptp(self._positions, axis=0), seconds)

    def check(self) -> tuple[Array, Array]:
        """Return mean positions (n,) [rad] and efforts in joint direction (n,) [Nm], see :func:`check_rest`.

        Raises:
            TakeoverRefused: The efforts do not balance gravity, or torque limits are too low to hold it.
        """
        q, tau = np.mean(self._positions, axis=0), np.mean(self._efforts, axis=0)
        check_rest(self._robot, q, tau)
        return q, tau


def find_motion(robot: RobotModel, spread: Array, seconds: float) -> str | None:
    """Return which joint moves, and by how much; None if the arm rests.

    ``spread`` is the largest difference of positions, (n,) [rad], in some time [s].
    """
    joint = int(spread.argmax())
    if spread[joint] <= _REST_SPREAD:
        return None
    return f"{robot.joint_names[joint]} moves: {spread[joint]:.4f} rad in {seconds:g} s"


def check_rest(robot: RobotModel, q: Array, tau: Array) -> None:
    """Check the conditions of torque control at rest: the static gravity check, and a reserve of torque.

    ``q`` (n,) [rad] and ``tau`` (n,) [Nm] are mean positions and efforts in joint direction.

    Raises:
        TakeoverRefused: The efforts do not balance gravity, or torque limits are too low to hold the arm.
    """
    if doubt := check_gravity(robot, q, tau):
        raise TakeoverRefused(doubt)
    require_holdable(robot, tau)


class HoldingTorque:
    """Torques that keep an arm in a place, (n,) [rad]: its balance, (n,) [Nm], damping and stiffness.

    Limits of torque and speed set the gains; the stiffness is in torque limits per radian [1/rad].
    """

    def __init__(self, robot: RobotModel, q: Array, effort: Array, stiffness: float = 0.0):
        limits = robot.limits
        self._robot, self._q, self._effort = robot, np.array(q), np.array(effort)
        self._stiffness = stiffness * limits.tau_continuous
        self._damping = _HOLD_DAMPING * limits.tau_continuous / limits.v_max

    def compute(self, q: Array, v: Array, extra: float = 0.0) -> Array:
        """Return the torque, (n,) [Nm], with ``extra`` [Nm] added to the last joint."""
        tau = self._effort + self._stiffness * (self._q - q) - self._damping * v
        tau[-1] += extra
        limit = self._robot.limits.tau_max
        return np.clip(tau, -limit, limit)

    def settle(self, q: Array) -> None:
        """Accept the place it has drifted to, (n,) [rad], if no stiffness pulls it back."""
        if not self._stiffness.any():
            self._q = np.array(q)

    def require_still(self, q: Array, allowed: float, question: str) -> None:
        """Refuse positions, (n,) [rad], further than allowed [rad] from the place, with a question to the user.

        Raises:
            TakeoverRefused: It has moved too far.
        """
        drift = np.abs(q - self._q)
        joint = int(drift.argmax())
        if drift[joint] > allowed:
            raise TakeoverRefused(
                f"{self._robot.joint_names[joint]} moved by {drift[joint]:.4f} rad under the torque that balances it "
                f"(allowed {allowed:g} rad): {question}"
            )


def require_holdable(robot: RobotModel, effort: Array) -> None:
    """Refuse an arm that needs nearly all of its torque limit, or more, at rest: under torque control it would sink.

    To be called while another controller still holds the arm; efforts at rest are in joint direction, (n,) [Nm].

    Raises:
        TakeoverRefused: Which joints, how much they need, and a remedy.
    """
    limits, needed = np.minimum(robot.limits.tau_max, robot.limits.tau_continuous), np.abs(effort) / _LARGEST_SHARE
    enough = needed + robot.sensors.lasting_error  # the next time another effort may be measured
    weak = [(robot.joint_names[k], effort[k], limits[k], enough[k]) for k in np.flatnonzero(needed > limits)]
    if weak:
        needs = "; ".join(f"{name} needs {tau:.2f} Nm at rest, its torque limit is {limit:.2f} Nm"
                          for name, tau, limit, _ in weak)  # fmt: skip
        raised = ", ".join(f"{name} to {np.ceil(10.0 * least) / 10.0:.1f} Nm" for name, _, _, least in weak)
        raise TakeoverRefused(
            f"torque control could not hold it: {needs} (allowed at rest: {100.0 * _LARGEST_SHARE:.0f} % of it). Raise "
            f"torque in the robot file (continuous_torque where it has both), {raised} or more, if the arm may have "
            "that; or choose a posture that needs less, or a lighter payload"
        )


def hold_and_probe(
    arm: Arm, robot: RobotModel, settings: ConnectionSettings, state: ArmState, effort: Array, question: str
) -> ArmState:
    """Balance the arm with its measured torques, damped, and check that it responds as it should.

    Args:
        arm: The arm, under torque and paced by its controller.
        robot: Limits and names.
        settings: Duration, largest drift, probe torque.
        state: Its state, not answered yet; the last one is returned, not answered yet either.
        effort: Efforts at rest in joint direction, (n,) [Nm].
        question: Question to the user where the arm does not stay.

    Raises:
        TakeoverRefused: The arm moves where it should not, or not the way it should.
    """
    holding = HoldingTorque(robot, state.q, effort)

    def cycle(extra: float) -> Array:
        nonlocal state
        holding.require_still(state.q, settings.hold_drift, question)
        if state.ok:
            arm.command(holding.compute(state.q, state.v, extra))
        state = arm.read()
        return state.q

    probe(robot, settings, arm.period, holding, cycle)
    return state


def probe(
    robot: RobotModel,
    settings: ConnectionSettings,
    period: float,
    holding: HoldingTorque,
    cycle: Callable[[float], Array],
) -> None:
    """Let the arm stay for a moment, then raise a torque slowly on the last joint, which has to move the right way.

    Args:
        robot: Limits and names.
        settings: Duration and probe torque.
        period: Duration of a cycle [s].
        holding: Keeps the arm in place.
        cycle: Holds the arm for a cycle with this torque added to the last joint [Nm]; returns positions, (n,) [rad].

    Raises:
        TakeoverRefused: It does not move, or not the right way.
    """
    rest = range(round(settings.hold_time / period))
    for _ in rest:
        q = cycle(0.0)
    if not settings.probe_torque:
        return
    holding.settle(q)
    name, largest = robot.joint_names[-1], settings.probe_torque * robot.limits.tau_continuous[-1]
    start, steps = cycle(0.0)[-1], round(_PROBE_TIME / period)
    for step in range(1, steps):
        moved = cycle(largest * step / steps)[-1] - start
        if abs(moved) > _PROBE_DISTANCE:
            break
    else:
        raise TakeoverRefused(f"{name} does not move under {largest:.1f} Nm: torques do not act, or it is blocked")
    if moved < 0.0:
        raise TakeoverRefused(f"{name} moves backwards under a positive torque: the sign of the commands is wrong")
    for _ in rest:
        cycle(0.0)
