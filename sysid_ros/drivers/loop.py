"""The torque loop: reads the arm, guards it, and commands the controller's torque, once per cycle.

It knows neither ROS nor a wall clock: whoever calls :meth:`ControlLoop.step` paces it. What the arm does in each mode
and on each fault is the table in docs/reference/torque_loop.md. All methods belong to one thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.serialization import Trajectory
from sysid_ros.drivers.admission import admit_control, admit_start, admit_takeover, admit_trajectory
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.loop_model import LoopModel
from sysid_ros.drivers.loop_types import (
    LoopCode,
    LoopMode,
    LoopRefusal,
    LoopSample,
    LoopSettings,
    LoopStatus,
    Transition,
)
from sysid_ros.drivers.monitors import FaultStop, MeasurementCheck, MotionGuard, TorqueCheck
from sysid_ros.drivers.reference import Reference, TorqueOutput

if TYPE_CHECKING:
    from sysid_ros.core.control.settings import Controller

_KEPT_TRANSITIONS = 20


class ControlLoop:
    """Drives one arm with one controller.

    Args:
        arm: The arm, not yet connected.
        controller: Its model is set from ``model``.
        robot: Limits, sensors and names.
        settings: How the arm is guarded.
        model: Model to begin with; the robot's nominal one with its payload prior if None.
    """

    def __init__(
        self,
        arm: Arm,
        controller: Controller,
        robot: RobotModel,
        settings: LoopSettings | None = None,
        model: LoopModel | None = None,
    ):
        self.arm = arm
        self.robot = robot
        self.settings = settings or LoopSettings()
        self._controller = controller
        self._mode, self._code, self._reason = LoopMode.IDLE, LoopCode.OK, "not connected"
        self._transitions: deque[Transition] = deque(maxlen=_KEPT_TRANSITIONS)
        self._guard = MotionGuard(robot, self.settings)
        self._fault_stop = FaultStop(robot, self.settings, arm.period)
        self._output = TorqueOutput(robot.limits.tau_max, self.settings.blend_time, arm.period)
        self._cycles = self._invalid_cycles = self._missed_deadlines = 0
        self._now_ns = 0
        self._reset(robot.home)
        self._use_model(model or LoopModel.nominal(robot))

    def warm_up(self) -> None:
        """Evaluates the control law once, before anybody waits for it: that takes milliseconds longer than later."""
        home, rest = self.robot.home, np.zeros(self.robot.n)
        self._controller.compute(home, rest, home, rest, rest)
        self._controller.reset()

    def connect(self) -> None:
        """Takes the arm over and holds it where it is; also the way back from a fault.

        Raises:
            LoopRefusal: Already connected, or a fault is not over yet.
            ArmError: The arm cannot be taken over or gives no usable measurement.
        """
        if self._mode is not LoopMode.IDLE and not self._is_given_up:
            raise LoopRefusal("connect", f"the loop is in {self._mode.name}")
        self.arm.connect()
        state = self._read_first_state()
        self._check = MeasurementCheck(self.robot, self.settings, self.arm.period)
        self._torque_check = TorqueCheck(self.robot, self.settings.torque_mismatch_time, self.arm.period)
        self._controller.reset()
        self._reset(state.q)
        self._first_state = state
        self._q, self._v, self._now_ns = state.q, state.v, state.stamp_ns
        self._output.start_blend(state.tau)
        self._change_mode(LoopMode.HOLD, LoopCode.OK, "connected, holding position")

    def step(self) -> LoopSample | None:
        """Runs one cycle.

        Returns:
            What was measured and commanded; None where the arm gave no answer or is not connected.
        """
        if self._mode is LoopMode.IDLE:
            return None
        try:
            state, self._first_state = self._first_state or self.arm.read(), None
            return self._run_cycle(state)
        except ArmError as error:
            self._lose_arm(error)
            return None

    def execute(self, trajectory: Trajectory, certificate: Certificate | None, model: LoopModel | None = None) -> None:
        """Checks a trajectory and starts it, or lets it take over from its predecessor.

        Args:
            trajectory: The motion.
            certificate: Its certificate; without one it is refused.
            model: Model the controller uses from the takeover on; None keeps the present one, which a start from rest
                must.

        Raises:
            LoopRefusal: It may not be executed; says which joint and by how much.
        """
        certificate = admit_trajectory(self.robot, trajectory, certificate, self.boxes_of(model), self._now_ns * 1e-9)
        self.begin(trajectory, certificate, model)

    def boxes_of(self, model: LoopModel | None) -> tuple[Box, Box]:
        """Parameter boxes the certificate of a trajectory must be about, where it brings a model or none."""
        model = self._model if model is None else model
        return model.theta_box, model.payload_box

    def begin(self, trajectory: Trajectory, certificate: Certificate, model: LoopModel | None = None) -> None:
        """Starts a trajectory that :func:`admit_trajectory` has admitted with :meth:`boxes_of` it.

        Raises:
            LoopRefusal: The arm is not ready for it, or the model has changed since.
        """
        if certificate.predecessor is not None:
            self._continue(trajectory, certificate, model)
            return
        if model is not None:
            raise LoopRefusal("trajectory", "only a plan that takes over from another brings a model; set it before")
        if self._mode is not LoopMode.HOLD:
            raise LoopRefusal("trajectory", f"the arm must hold its position, but the loop is in {self._mode.name}")
        if self._output.blend_left > 0.0:
            raise LoopRefusal(
                "trajectory", f"torque is still being blended in for {self._output.blend_left:.2f} s; try again then"
            )
        if self._controller.blend_left > 0.0:
            left = self._controller.blend_left
            raise LoopRefusal(
                "trajectory", f"the controller still changes to another payload for {left:.2f} s; try again then"
            )
        if self._effort_fault:
            raise LoopRefusal("trajectory", self._effort_fault)
        if certificate.box_hash != self._box_hash:
            raise LoopRefusal("trajectory", "the model has changed since it was checked; certify it again")
        admit_control(certificate, self._controller.law, self._model.payload)
        admit_start(self.robot, trajectory, certificate, self._reference.q, self._rested)
        self._reference.follow(trajectory)
        self._error_max = np.zeros(self.robot.n)
        self.heartbeat()
        self._use_certificate(trajectory, certificate)

    def brake(self, reason: str, code: LoopCode = LoopCode.BRAKE_REQUESTED) -> None:
        """Brings the arm to rest along the path of its trajectory; does nothing where it rests or brakes already."""
        if self._mode is LoopMode.TRACK:
            self._next = None
            self._reference.brake(self._brake_time)
            self._change_mode(LoopMode.BRAKE, code, reason)

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """Gives the controller another model; its torque is blended in.

        Args:
            model: The model.
            is_reset: Whether the boxes may be larger than before (the payload was changed).

        Raises:
            LoopRefusal: The arm moves, or a box is not inside the one in use.
        """
        if self._mode in (LoopMode.TRACK, LoopMode.BRAKE):
            raise LoopRefusal("model", "the arm moves with a certificate for the model in use; wait until it rests")
        model.require_fits(self.robot)
        if not is_reset:
            model.require_inside(self._model, self.robot)
        has_changed = not np.array_equal(model.payload, self._model.payload)
        self._use_model(model)
        if self._mode is LoopMode.HOLD and has_changed:
            self._output.start_blend(self._output.last)

    def heartbeat(self, now_ns: int | None = None) -> None:
        """Notes a sign of life of the commanding side.

        Args:
            now_ns: When, on the loop's clock [ns]; now if None.
        """
        self._heartbeat_ns = self._now_ns if now_ns is None else now_ns

    def report_late(self, lateness: float) -> None:
        """Notes that a cycle started ``lateness`` [s] after its deadline, and brakes where that is too much."""
        self._missed_deadlines += 1
        if lateness > self.settings.late_limit:
            self.brake(
                f"a cycle came {1e3 * lateness:.1f} ms late (allowed {1e3 * self.settings.late_limit:g} ms)",
                LoopCode.MISSED_DEADLINES,
            )

    def release(self, reason: str) -> None:
        """Hands the arm back to its own controller or brakes and disconnects. Brake first where it moves."""
        self.arm.stop(reason)
        self.arm.close()
        if self._mode is not LoopMode.IDLE:
            self._change_mode(LoopMode.IDLE, self._code, reason)

    @property
    def mode(self) -> LoopMode:
        """What the loop does with the arm."""
        return self._mode

    @property
    def is_given_up(self) -> bool:
        """Whether the arm has been handed to its own controller or brakes after a fault."""
        return self._is_given_up

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves the arm: it is held, or not commanded at all."""
        return self._mode in (LoopMode.IDLE, LoopMode.HOLD) or self._is_given_up

    @property
    def now_ns(self) -> int:
        """Time of the last cycle [ns]."""
        return self._now_ns

    @property
    def model(self) -> LoopModel:
        """Model the controller uses."""
        return self._model

    @property
    def boxes(self) -> tuple[Box, Box]:
        """Parameter boxes a certificate must be about: the arm's (14 n,), the payload's (10,)."""
        return self._model.theta_box, self._model.payload_box

    def status(self) -> LoopStatus:
        """A look at the loop."""
        reference = self._reference
        return LoopStatus(
            mode=self._mode,
            code=self._code,
            reason=self._describe(),
            stamp_ns=self._now_ns,
            cycles=self._cycles,
            invalid_cycles=self._invalid_cycles,
            saturated_cycles=self._output.saturated_cycles,
            missed_deadlines=self._missed_deadlines + self.arm.late_answers,
            reference=reference.q.copy(),
            plan_id=self._plan_id,
            next_plan_id=self._next[1].plan_id if self._next is not None else None,
            progress=reference.progress,
            tracking_error=reference.q - self._q,
            tracking_error_max=self._error_max.copy(),
            tracking_bound=self._bound.copy(),
            is_taking_over=self._mode is LoopMode.HOLD and not self._is_undisturbed,
            rested=self._rested,
            model_box_hash=self._box_hash,
            law=self._controller.law,
            transitions=tuple(self._transitions),
        )

    def _describe(self) -> str:
        """Why the loop is in its mode, and at rest why it would refuse to move."""
        if self._mode is not LoopMode.HOLD or not self._effort_fault:
            return self._reason
        return f"{self._reason}; no motion may start: {self._effort_fault}"

    @property
    def _is_undisturbed(self) -> bool:
        """Whether the arm is held, and neither torque nor model are being blended."""
        return self._mode is LoopMode.HOLD and max(self._output.blend_left, self._controller.blend_left) <= 0.0

    # One cycle

    def _run_cycle(self, state: ArmState) -> LoopSample:
        self._cycles += 1 + state.missed  # a gap in the numbers: the estimator must not join what is around it
        is_valid = self._take_measurement(state)
        if self._mode is LoopMode.TRACK:
            self._brake_if(self._guard.find_silence((self._now_ns - self._heartbeat_ns) * 1e-9), LoopCode.STALE)
        reference = self._reference
        reference.advance(self.arm.period)
        if self._next is not None and not reference.is_continued:
            self._take_over()
        if is_valid and self._mode is not LoopMode.FAULT:
            self._watch_motion()
        if reference.trajectory is not None and reference.is_finished:
            self._come_to_rest()
        tau = self._compute_torque(is_valid)
        is_resting = self._is_undisturbed and not self._effort_fault
        self._rested = self._rested + self.arm.period if is_resting else 0.0
        if not self._is_given_up:
            self.arm.command(tau)
        self._torque_check.note(tau)
        is_ok = is_valid and state.is_exact and not self._effort_fault and self._mode is not LoopMode.FAULT
        return LoopSample(
            self._cycles, state.stamp_ns, is_ok, state.q, state.v, state.tau,
            reference.q, reference.v, reference.a, tau, self._mode,
        )  # fmt: skip

    def _continue(self, trajectory: Trajectory, certificate: Certificate, model: LoopModel | None) -> None:
        reference, takeover_time = self._reference, certificate.takeover_time
        if self._mode is not LoopMode.TRACK:
            raise LoopRefusal("trajectory", f"it continues a motion, but the loop is in {self._mode.name}")
        if self._next is not None:
            raise LoopRefusal("trajectory", f"plan {self._next[1].plan_id[:12]} already waits to take over")
        admit_takeover(self.robot, trajectory, certificate, reference.trajectory, self._plan_id)
        late = reference.time - takeover_time
        if late > -self.arm.period:
            raise LoopRefusal(
                "trajectory",
                f"it comes {late + self.arm.period:.3f} s too late to take over; the arm follows the present plan, "
                "which ends at rest",
            )
        if model is not None:
            model.require_fits(self.robot)
            model.require_inside(self._model, self.robot)
        if certificate.box_hash != box_hash(*self.boxes_of(model)):
            raise LoopRefusal("trajectory", "the model has changed since it was checked; certify it again")
        payload = (self._model if model is None else model).payload
        admit_control(certificate, self._controller.law, payload)
        reference.continue_with(trajectory, takeover_time)
        self._next = (trajectory, certificate, model)

    def _take_over(self) -> None:
        (trajectory, certificate, model), self._next = self._next, None
        if model is not None:
            self._use_model(model)  # takes 0.4 ms; the controller carries over what it has learnt, so nothing jumps
        self._use_certificate(trajectory, certificate)

    def _use_certificate(self, trajectory: Trajectory, certificate: Certificate) -> None:
        self._plan_id = certificate.plan_id
        self._bound = np.array(certificate.tracking_bound)
        self._velocity_bound = np.array(certificate.velocity_bound)
        self._brake_time = certificate.brake_time
        self._change_mode(LoopMode.TRACK, LoopCode.OK, f"following {trajectory.kind} {self._plan_id[:12]}")

    def _take_measurement(self, state: ArmState) -> bool:
        fault = self._check.find_fault(state)
        if fault:
            self._bridge_invalid(fault)
            return False
        self._invalid_in_a_row = 0
        self._q, self._v, self._effort, self._now_ns = state.q, state.v, state.tau, state.stamp_ns
        self._effort_fault = self._check.find_effort_fault(state) or self._torque_check.find_mismatch(state.tau)
        self._brake_if(self._effort_fault, LoopCode.INVALID_MEASUREMENT)
        if state.faults:
            self.brake("the arm reports: " + ", ".join(state.faults), LoopCode.HARDWARE)
        return True

    def _bridge_invalid(self, fault: str) -> None:
        """Goes on with an extrapolated state for a few cycles."""
        period, settings = self.arm.period, self.settings
        self._torque_check.restart()
        self._invalid_cycles += 1
        self._invalid_in_a_row += 1
        self._now_ns += round(period * 1e9)
        if self._mode is not LoopMode.FAULT:
            self._q = self._q + self._v * period
        text = f"no usable measurement in {self._invalid_in_a_row} cycles: {fault}"
        if self._invalid_in_a_row >= settings.invalid_cycles_to_fault:
            self._give_up(text, LoopCode.INVALID_MEASUREMENT)
        elif self._invalid_in_a_row >= settings.invalid_cycles_to_brake:
            self.brake(text, LoopCode.INVALID_MEASUREMENT)

    def _watch_motion(self) -> None:
        guard, reference = self._guard, self._reference
        if reference.trajectory is not None:
            error = np.abs(reference.path - self._q)
            np.maximum(self._error_max, error, out=self._error_max)
            bounds = (self._bound, self._velocity_bound)
            stuck = self._check.find_stuck_joint(reference.q, reference.v, *bounds)
            self._give_up_if(stuck, LoopCode.INVALID_MEASUREMENT, is_blind=True)
            self._brake_if(guard.find_bound_violation(error, self._bound), LoopCode.TRACKING_ERROR)
        self._give_up_if(guard.find_following_error(reference.q, self._q), LoopCode.TRACKING_ERROR)
        self._give_up_if(guard.find_overspeed(self._v), LoopCode.LIMIT)

    def _come_to_rest(self) -> None:
        reason = f"at rest after braking: {self._reason}" if self._mode is LoopMode.BRAKE else "trajectory done"
        self._reference.hold(self._reference.q)
        self._bound = np.full(self.robot.n, np.inf)
        self._plan_id = None
        self._change_mode(LoopMode.HOLD, self._code, reason)

    def _compute_torque(self, is_valid: bool) -> Array:
        """The torque to send, (n,) [Nm]; not a number where the arm has been given up."""
        reference, output = self._reference, self._output
        # In motion the tracking bound needs what is learnt. At rest nothing does, and a motor that does not obey would
        # let it grow without end.
        self._controller.is_integrating = self._mode is not LoopMode.HOLD or not self._effort_fault
        if self._mode is not LoopMode.FAULT:
            try:
                tau = self._controller.compute(self._q, self._v, reference.q, reference.v, reference.a)
                tau = output.blend(np.asarray(tau, dtype=float))
            except Exception as error:  # whatever fails in a controller must not take the loop down with the arm
                self._give_up(f"the controller failed: {error!r}", LoopCode.INTERNAL)
            else:
                if tau.shape == self._q.shape and np.isfinite(tau).all():
                    return output.limit(tau)
                self._give_up(f"the controller's torque is not one finite number per joint: {tau}", LoopCode.INTERNAL)
        if not self._is_given_up and self._fault_stop.is_over(self._v, is_valid):
            self._hand_over()
        if self._is_given_up:
            return np.full(self.robot.n, np.nan)
        balance = self._dynamics.gravity(self._q) + self._model.torque_offset(self.robot)
        return output.limit(self._fault_stop.torque(balance, self._v, is_valid))

    # Changes of state

    def _change_mode(self, mode: LoopMode, code: LoopCode, reason: str) -> None:
        self._transitions.append(Transition(self._now_ns, self._mode, mode, code, reason))
        self._mode, self._code, self._reason = mode, code, reason

    def _brake_if(self, fault: str, code: LoopCode) -> None:
        if fault:
            self.brake(fault, code)

    def _give_up_if(self, fault: str, code: LoopCode, is_blind: bool = False) -> None:
        if fault:
            self._give_up(fault, code, is_blind)

    def _give_up(self, reason: str, code: LoopCode, is_blind: bool = False) -> None:
        if self._mode is not LoopMode.FAULT:
            self._next = None
            self._reference.hold(self._q)
            self._fault_stop.start(is_blind)
            self._change_mode(LoopMode.FAULT, code, reason)

    def _lose_arm(self, error: ArmError) -> None:
        if not self._is_given_up:
            self._give_up(str(error), LoopCode.HARDWARE)
            self._hand_over()

    def _hand_over(self) -> None:
        self.arm.stop(self._reason)
        self._is_given_up = True

    def _reset(self, q: Array) -> None:
        self._reference = Reference(q, self.settings.blend_time)
        self._q, self._v, self._effort = np.array(q, dtype=float), np.zeros(self.robot.n), np.zeros(self.robot.n)
        self._bound = np.full(self.robot.n, np.inf)
        self._velocity_bound = np.full(self.robot.n, np.inf)
        self._error_max = np.zeros(self.robot.n)
        self._brake_time = np.nan  # of the certificate of a motion
        self._plan_id: str | None = None
        self._effort_fault = ""
        self._rested = 0.0
        self._is_given_up = False
        self._invalid_in_a_row = 0
        self._first_state: ArmState | None = None
        self._next: tuple[Trajectory, Certificate, LoopModel | None] | None = None
        self.heartbeat()

    def _use_model(self, model: LoopModel) -> None:
        self._controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
        self._model = model
        self._dynamics = ArmDynamics(self.robot, model.theta, model.payload)
        self._box_hash = box_hash(model.theta_box, model.payload_box)

    def _read_first_state(self) -> ArmState:
        fault = ""
        check = MeasurementCheck(self.robot, self.settings, self.arm.period)
        for _ in range(self.settings.invalid_cycles_to_fault):
            state = self.arm.read()
            fault = check.find_fault(state)
            if not fault:
                return state
        self.arm.stop(fault)
        self.arm.close()
        raise ArmError(f"no usable measurement after connecting: {fault}")
