"""Monitors of the control loop, each of which returns a fault or None, and the stop of a faulted arm."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array, is_all_finite
from sysid_ros.drivers.loop_types import Fault, LoopCode, LoopSettings

_REST_SPEED = 0.02
"""Speed below which the arm counts as resting [rad/s]."""
_REST_CYCLES = 20


class FaultStop:
    """Damps an arm until it rests or its time is up; torque and speed limits set the damping."""

    def __init__(self, robot: RobotModel, settings: LoopSettings, period: float):
        self._damping = settings.fault_damping * robot.limits.tau_continuous / robot.limits.v_max
        self._settings, self._period = settings, period
        self.start(is_blind=False)

    def start(self, is_blind: bool) -> None:
        """Begin; ``is_blind`` says that a measurement is wrong although it looks right (a stuck encoder)."""
        self._is_blind = is_blind
        self._time, self._rest_cycles = 0.0, 0

    def is_over(self, v: Array, is_valid: bool) -> bool:
        """Return whether to hand the arm back; called once per cycle with the last velocities, (n,) [rad/s].

        ``is_valid``: whether they are of this cycle.
        """
        is_resting = is_valid and np.abs(v).max() < _REST_SPEED
        self._rest_cycles = self._rest_cycles + 1 if is_resting else 0
        self._time += self._period
        settings = self._settings
        is_blind = self._is_blind or not is_valid
        limit = settings.fault_blind_time if is_blind else settings.fault_damping_time
        return self._rest_cycles >= _REST_CYCLES or self._time > limit

    def torque(self, balance: Array, v: Array, is_valid: bool) -> Array:
        """Return the torque, (n,) [Nm]: the balance, and damping where the velocity is known."""
        return balance - self._damping * v if is_valid else balance


_SPEED_MARGIN = 3.0
"""Apparent speed between two samples over its limit above which a position is invalid."""
_RESOLUTION_STEPS = 8.0
"""Encoder steps a reference may travel at least before an unchanged reading counts as stuck."""


class MeasurementCheck:
    """Checks the states of an arm, one after the other, at a nominal period [s]."""

    def __init__(self, robot: RobotModel, settings: LoopSettings, period: float):
        self._names = robot.joint_names
        resolution = robot.sensors.position_resolution
        self._step_limit = _SPEED_MARGIN * robot.limits.v_max * period + 2.0 * resolution
        self._stuck_floor = _RESOLUTION_STEPS * resolution
        self._stuck_displacement = settings.stuck_displacement
        self._period = period
        self._cycles_since_valid = 1
        self._last: ArmState | None = None
        self._anchor = np.full(robot.n, np.nan)  # reference when the reading last changed
        self._sure = np.zeros(robot.n)  # how far the joint must have moved since then, signed
        self._has_changed = np.ones(robot.n, dtype=bool)

    def find_fault(self, state: ArmState) -> Fault | None:
        """Find why position and velocity of this state cannot be used; remember a state that can."""
        reason = self._find_reason(state)
        if reason is not None:
            self._cycles_since_valid += 1
            return Fault(LoopCode.INVALID_MEASUREMENT, reason)
        if self._last is not None:
            self._has_changed |= state.q != self._last.q
        self._last, self._cycles_since_valid = state, 1
        return None

    def find_stuck_joint(self, q_d: Array, v_d: Array, position_bound: Array, velocity_bound: Array) -> Fault | None:
        """Find a position reading that must be stuck; to be called once per cycle.

        A joint with the desired velocity ``v_d`` moves at least at ``|v_d| - velocity_bound``: as soon as it must have
        moved a few encoder steps, an unchanged reading is stuck. A slower one may truly be held by friction for a
        while; then the reading counts as stuck once the reference has moved by the bound of the position error. No
        joint with an error below half its bound is held so long. All arguments are (n,), [rad] and [rad/s].
        """
        self._anchor[self._has_changed] = q_d[self._has_changed]
        sure = np.sign(v_d) * np.maximum(np.abs(v_d) - velocity_bound, 0.0) * self._period
        self._sure[self._sure * sure < 0.0] = 0.0
        self._sure += sure
        self._sure[self._has_changed] = 0.0  # this cycle's motion came before the change
        self._has_changed[:] = False
        moved = np.abs(q_d - self._anchor)
        limit = np.maximum(np.minimum(self._stuck_displacement, position_bound), self._stuck_floor)
        excess = np.maximum(moved - limit, np.abs(self._sure) - self._stuck_floor)
        worst = int(np.argmax(excess))
        if not excess[worst] > 0.0:
            return None
        reason = (
            f"the position of {self._names[worst]} has not changed while the reference moved {moved[worst]:.4f} rad "
            f"(allowed {limit[worst]:.4f} rad, and {self._stuck_floor[worst]:.4f} rad where it surely follows)"
        )
        return Fault(LoopCode.INVALID_MEASUREMENT, reason, ends_control=True, is_blind=True)

    def find_effort_fault(self, state: ArmState) -> Fault | None:
        """Find why the efforts of this state cannot be used."""
        reason = self._find_not_finite("torque", state.tau)
        return None if reason is None else Fault(LoopCode.INVALID_MEASUREMENT, reason)

    def _find_reason(self, state: ArmState) -> str | None:
        if not state.ok:
            return "no fresh measurement"
        reason = self._find_not_finite("position", state.q) or self._find_not_finite("velocity", state.v)
        last = self._last
        if reason is not None or last is None:
            return reason
        if state.stamp_ns <= last.stamp_ns:
            return f"the stamp {state.stamp_ns} ns is not later than the one before, {last.stamp_ns} ns"
        cycles = max(self._cycles_since_valid, (state.stamp_ns - last.stamp_ns) * 1e-9 / self._period)
        jump = np.abs(state.q - last.q) - cycles * self._step_limit
        worst = int(jump.argmax())
        if jump[worst] > 0.0:
            step, allowed = abs(state.q[worst] - last.q[worst]), cycles * self._step_limit[worst]
            return f"the position of {self._names[worst]} jumped by {step:.4f} rad (allowed {allowed:.4f} rad)"
        return None

    def _find_not_finite(self, name: str, values: Array) -> str | None:
        if is_all_finite(values):
            return None
        joint = int(np.isfinite(values).argmin())
        return f"the {name} of {self._names[joint]} is {values[joint]}"


class MotionGuard:
    """Compares measured with desired motion."""

    def __init__(self, robot: RobotModel, settings: LoopSettings):
        self._names = robot.joint_names
        self._settings = settings
        self._v_max = robot.limits.v_max
        self._measurement_error = 0.5 * robot.sensors.position_resolution

    def find_bound_violation(self, error: Array, bound: Array) -> Fault | None:
        """Find a joint that has left its certified tube, by its absolute error and the bound, (n,) [rad] each."""
        excess = error - bound - self._measurement_error
        joint = int(excess.argmax())
        if excess[joint] <= 0.0:
            return None
        return Fault(
            LoopCode.TRACKING_ERROR,
            f"{self._names[joint]} is {error[joint]:.4f} rad away from its path "
            f"(certified bound {bound[joint]:.4f} rad)",
        )

    def find_following_error(self, q_d: Array, q: Array) -> Fault | None:
        """Find a joint that no longer follows at all, by its desired and measured positions, (n,) [rad] each."""
        error = np.abs(q_d - q)
        joint = int(error.argmax())
        allowed = self._settings.following_error
        if error[joint] <= allowed:
            return None
        reason = f"{self._names[joint]} is {error[joint]:.4f} rad away from its reference (allowed {allowed:g} rad)"
        return Fault(LoopCode.TRACKING_ERROR, reason, ends_control=True)

    def find_overspeed(self, v: Array) -> Fault | None:
        """Find a joint that is much faster than allowed, by measured velocities, (n,) [rad/s]."""
        share = np.abs(v) / self._v_max
        joint = int(share.argmax())
        factor = self._settings.overspeed_factor
        if share[joint] <= factor:
            return None
        reason = (
            f"{self._names[joint]} moves with {v[joint]:.3f} rad/s "
            f"(limit {self._v_max[joint]:.3f} rad/s, allowed {factor:g} times that)"
        )
        return Fault(LoopCode.LIMIT, reason, ends_control=True)

    def find_timeout(self, elapsed: float) -> Fault | None:
        """Find a timeout of the commanding side, by the time since its last heartbeat [s]."""
        allowed = self._settings.heartbeat_timeout
        if elapsed <= allowed:
            return None
        reason = f"no heartbeat of the commanding side for {elapsed:.3f} s (allowed {allowed:g} s)"
        return Fault(LoopCode.STALE, reason)


_FORGIVEN = 20
"""After so many times the allowed duration without a difference a sensor is valid again."""
_HARDEST = 3.0
"""A rotor is taken to accelerate by at most so many times the limit for planning, as the estimator takes it."""


class TorqueCheck:
    """Finds joints whose torque is not the commanded one: a wrong gain or sign, a motor that does not obey.

    A command takes effect within one cycle, so the torque that is measured lies between the last two commands, within
    the error of the sensor, and so do the means of torques that vibrate, within a smaller one; both within the torque
    of the rotor, where the sensor is behind it. A sensor on the link side measures another torque; then nothing is
    checked. The two must differ without a break for a duration [s]; 0 checks nothing. Cycles have a period [s].
    """

    def __init__(self, robot: RobotModel, duration: float, period: float):
        sensors = robot.sensors
        self._names = robot.joint_names
        self._relative, self._absolute = sensors.effort_relative_error, sensors.effort_absolute_error
        meaning = sensors.effort_meaning
        rotor = np.zeros(robot.n)
        if not meaning.has_armature:
            rotor = _HARDEST * robot.friction(robot.theta_box.upper)[:, 2] * robot.limits.a_max
        self._absolute = self._absolute + rotor
        self._is_on = duration > 0.0 and meaning.has_friction
        self._right = 0
        self._fault: Fault | None = None
        self._cycles = max(1, round(duration / period))
        self._duration = duration
        self._lasting, self._block = sensors.lasting_error + rotor, max(1, round(sensors.averaging_time / period))
        self.restart()

    def restart(self) -> None:
        """Discard the commands, as after cycles in which the motors' torques are unknown."""
        self._last = self._before = np.full(len(self._names), np.nan)
        self._wrong = np.zeros(len(self._names), dtype=int)
        self._sums, self._summed = np.zeros((2, len(self._names))), 0

    def note(self, command: Array) -> None:
        """Add the command of this cycle, (n,) [Nm]."""
        self._before, self._last = self._last, command

    def find_mismatch(self, tau: Array) -> Fault | None:
        """Find why the efforts, now (n,) [Nm], do not match the commands."""
        if not self._is_on or not is_all_finite(self._before):
            return None
        lower, upper = np.minimum(self._before, self._last), np.maximum(self._before, self._last)
        size = np.maximum(np.abs(tau), np.maximum(np.abs(lower), np.abs(upper)))
        allowed = (self._relative * size + self._absolute) * (1.0 + 1e-9)  # an error at its bound, rounded
        is_wrong = ~(np.maximum(lower - tau, tau - upper) <= allowed)
        if self._block > 1:
            self._compare_means(tau, lower, upper, self._relative * size + self._lasting)
        self._wrong = (self._wrong + 1) * is_wrong
        self._right = 0 if np.count_nonzero(is_wrong) else self._right + 1
        if self._right >= _FORGIVEN * self._cycles:
            self._fault = None
        joint = int(self._wrong.argmax())
        if self._wrong[joint] >= self._cycles and self._fault is None:  # the first finding stays
            name, sent = self._names[joint], self._last[joint]
            text = (
                f"the torque of {name} is {tau[joint]:.3f} Nm, commanded were {sent:.3f} Nm: more "
                f"than the sensor's error of {allowed[joint]:.3f} Nm apart for {1e3 * self._duration:.0f} ms"
            )
            self._fault = Fault(LoopCode.INVALID_MEASUREMENT, text)
        return self._fault

    def _compare_means(self, tau: Array, lower: Array, upper: Array, allowed: Array) -> None:
        self._sums += (lower - tau - allowed, tau - upper - allowed)
        self._summed += 1
        if self._summed < self._block:
            return
        excess, self._summed = self._sums.max(axis=0) / self._block, 0
        self._sums[:] = 0.0
        joint = int(excess.argmax())
        if excess[joint] > 1e-9:
            self._right = 0
            name, sent = self._names[joint], self._last[joint]
            text = (
                f"the torque of {name} is {tau[joint]:.3f} Nm, commanded were {sent:.3f} Nm: in the mean "
                f"{excess[joint]:.3f} Nm further apart than the sensor's error of {allowed[joint]:.3f} Nm"
            )
            self._fault = self._fault or Fault(LoopCode.INVALID_MEASUREMENT, text)
