"""The torque loop: reads the arm, guards it, and commands the controller's torque, once per cycle.

It uses neither ROS nor a wall clock: the caller of :meth:`ControlLoop.step` paces it. The table in
docs/reference/torque_loop.md has the reactions in each mode and to each fault. All methods belong to one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.certification.continuous import Load, TorqueRecord, find_heat
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.baselines import OnlineModelController
from sysid_ros.core.control.guiding import GuidingSettings, HandGuide, Wall
from sysid_ros.core.control.model_fitter import FittedModel
from sysid_ros.core.control.settings import ROBUST
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.admission import (
    NOT_CERTIFIED,
    admit_control,
    admit_load,
    admit_start,
    admit_takeover,
    admit_trajectory,
    admit_uncertified,
)
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array, is_all_finite
from sysid_ros.drivers.loop_types import (
    Fault,
    LoopCode,
    LoopMode,
    LoopModel,
    LoopRefusal,
    LoopSample,
    LoopSettings,
    LoopStatus,
    ModeState,
    RefusalCode,
)
from sysid_ros.drivers.monitors import FaultStop, MeasurementCheck, MotionGuard, TorqueCheck
from sysid_ros.drivers.reference import Reference, Segment, TorqueOutput

if TYPE_CHECKING:
    from sysid_ros.core.control.settings import Controller

_OTHER_MODEL = "the model has changed since it was checked; certify it again"


class ControlLoop:
    """The loop that drives one arm with one controller.

    Args:
        arm: The arm, not yet connected.
        controller: Its model is set from ``model``.
        robot: Limits, sensors and names.
        settings: Settings of the monitors.
        model: Model to begin with; the robot's nominal one with its payload prior if None.

    Attributes:
        model: Model the controller uses.
        is_handed_back: Whether the arm has been handed back to its own controller or brakes after a fault.
    """

    def __init__(
        self,
        arm: Arm,
        controller: Controller,
        robot: RobotModel,
        settings: LoopSettings | None = None,
        model: LoopModel | None = None,
    ):
        self.arm, self.robot, self.settings = arm, robot, settings or LoopSettings()
        self._controller, self._state = controller, ModeState()
        self._cycles = self._invalid_cycles = self._invalid_in_a_row = self._missed_deadlines = 0
        self._output = TorqueOutput(robot.limits.tau_max, self.settings.blend_time, arm.period)
        self._heartbeat_ns = 0
        self._begin(ArmState(0, np.array(robot.home), np.zeros(robot.n), np.zeros(robot.n), False))
        self._first_state: ArmState | None = None
        self._use_model(model or LoopModel.nominal(robot))

    def _begin(self, state: ArmState) -> None:
        """Start all monitors and the reference anew at a state."""
        robot, settings, period = self.robot, self.settings, self.arm.period
        self._check = MeasurementCheck(robot, settings, period)
        self._torque_check = TorqueCheck(robot, settings.torque_mismatch_time, period)
        self._guard, self._stop = MotionGuard(robot, settings), FaultStop(robot, settings, period)
        self._reference = Reference(state.q, settings.blend_time)
        self._measured = state  # the last one, extrapolated in a few cycles without a usable measurement
        self._effort_fault: Fault | None = None
        self._present: Segment | None = None  # followed or braked on, or the last one before the arm was lost
        self._next: Segment | None = None  # waits to take over from it
        self._error_max = np.zeros(robot.n)
        self._guide: HandGuide | None = None  # in place of a trajectory while a person leads the arm, until it rests
        # Whether the arm rests at the end of a certified plan with its model, where it may be held for ever: a single
        # torque beyond the continuous limit proves nothing then.
        self._may_stay = False
        self._torques = TorqueRecord(np.nan_to_num(state.tau), period)
        self._rested, self.is_handed_back = 0.0, False

    def warm_up(self) -> None:
        """Evaluate the control law once in advance: the first time takes milliseconds longer than later ones."""
        home, rest = self.robot.home, np.zeros(self.robot.n)
        self._controller.compute(home, rest, home, rest, rest)
        self._controller.reset()

    def connect(self) -> None:
        """Take the arm over and hold it where it is; also the way back from a fault.

        Raises:
            LoopRefusal: Already connected, or a fault is not over yet.
            ArmError: The arm cannot be taken over or gives no usable measurement.
        """
        if self.mode is not LoopMode.IDLE and not self.is_handed_back:
            raise LoopRefusal("connect", f"the loop is in {self.mode.name}")
        self.arm.connect()
        state = self._read_first_state()
        self._controller.reset(state.tau if np.isfinite(state.tau).all() else None)
        self._begin(state)
        self._invalid_in_a_row = 0
        self._first_state = state
        self._output.start_blend(state.tau)
        self._change_mode(LoopMode.HOLD, LoopCode.OK, "connected, holding position")

    def step(self) -> LoopSample | None:
        """Run one cycle; return measurement and command, None where the arm gave no answer or is not connected."""
        if self.mode is LoopMode.IDLE:
            return None
        try:
            state, self._first_state = self._first_state or self.arm.read(), None
            return self._run_cycle(state)
        except ArmError as error:
            if not self.is_handed_back:
                self._enter_fault(str(error), LoopCode.HARDWARE)
                self._hand_back()
            return None

    def execute(self, trajectory: Trajectory, certificate: Certificate | None, model: LoopModel | None = None) -> float:
        """Check a trajectory and start it, or let it take over from its predecessor; without a certificate, refuse it.

        The controller has the model from the takeover on; None keeps the present one, as a start from rest must.

        Returns:
            Time until it takes over [s]; 0 for a start from rest.

        Raises:
            LoopRefusal: It may not be executed; says which joint and by how much.
        """
        certificate = admit_trajectory(self.robot, trajectory, certificate, self.boxes_of(model), self.now_ns * 1e-9)
        return self.begin(trajectory, certificate, model)

    def boxes_of(self, model: LoopModel | None) -> tuple[Box, Box]:
        """Return the boxes that the certificate of a trajectory must have, where it brings a model or none."""
        model = model or self.model
        return model.theta_box, model.payload_box

    def begin(self, trajectory: Trajectory, certificate: Certificate, model: LoopModel | None = None) -> float:
        """Start a trajectory that :func:`admit_trajectory` has admitted with its boxes; returns as :meth:`execute`.

        Raises:
            LoopRefusal: The arm is not ready for it, or the model has changed since.
        """
        segment = Segment(trajectory, certificate, model)
        if certificate.predecessor is not None:
            return self._continue(segment, certificate)
        if model is not None:
            text = "only a plan that takes over from another brings a model; set it before"
            raise LoopRefusal("trajectory", text, RefusalCode.MALFORMED)
        self._require_ready()
        if certificate.box_hash != self._box_hash:
            raise LoopRefusal("trajectory", _OTHER_MODEL, RefusalCode.OTHER_ASSUMPTIONS)
        admit_control(certificate, self._controller.law, self.model.payload)
        admit_start(self.robot, trajectory, certificate, self._reference.q, self._rested)
        held = None if self._may_stay else self._output.last
        admit_load(self.robot, self._torques.load, trajectory, certificate, held)
        self._start(segment)
        return 0.0

    def follow_uncertified(self, trajectory: Trajectory) -> None:
        """Start a motion without a certificate, under a control law that cannot have one, in simulation only.

        It keeps the limits of positions and velocities; nothing is proven of errors, torques or obstacles. It starts
        from rest where the arm is held.

        Raises:
            LoopRefusal: Such motions are not allowed here, or the arm is not ready, or it does not keep the limits.
        """
        if self._controller.law.name == ROBUST or not self.settings.allows_uncertified:
            raise LoopRefusal("trajectory", NOT_CERTIFIED, RefusalCode.NO_CERTIFICATE)
        self._require_ready()
        admit_uncertified(self.robot, trajectory, self._reference.q)
        self._start(Segment(trajectory, None))

    def offer_model(self, model: FittedModel) -> bool:
        """Offer a model fitted beside the loop to a controller that uses such; return whether its gate judged it.

        It is not judged where it departs from another nominal model than the one in use.

        Raises:
            LoopRefusal: The control law uses none.
            ParameterOutOfRange: A length is wrong, or a parameter is not finite.
        """
        if not isinstance(self._controller, OnlineModelController):
            raise LoopRefusal("model", f"the control law {self._controller.law.name} uses no model fitted online")
        return self._controller.offer(model)

    def guide(self, settings: GuidingSettings | None = None, walls: Sequence[Wall] = ()) -> None:
        """Let a person lead the arm by its tool until :meth:`brake`; no certificate covers that.

        The wrench of the hand is estimated with the model in use; errors of the model push the arm, too. The sampling
        period is the arm's.

        Raises:
            LoopRefusal: Guiding is not allowed, or the arm is not held undisturbed.
            ParameterOutOfRange: The tool is behind a wall.
        """
        if not self.settings.allows_guiding:
            raise LoopRefusal("guiding", "it is switched off (allows_guiding): no certificate covers it")
        if not self._is_undisturbed:
            raise LoopRefusal("guiding", f"the arm must be held undisturbed, but the loop is in {self.mode.name}")
        if self._effort_fault is not None:
            raise LoopRefusal("guiding", self._effort_fault.reason)
        settings = replace(settings or GuidingSettings(), period=self.arm.period)
        guide = HandGuide(self.robot, add_payload(self.model.theta, self.model.payload), settings, walls)
        guide.start(self._reference.q)
        self._guide = guide
        self.heartbeat()
        self._change_mode(LoopMode.GUIDE, LoopCode.OK, "guided by hand, without a certificate")

    def brake(self, reason: str, code: LoopCode = LoopCode.BRAKE_REQUESTED) -> None:
        """Bring the arm to rest along the path of its trajectory; do nothing where it rests or brakes already.

        A guided arm no longer follows the hand.
        """
        if self.mode is LoopMode.GUIDE and self._guide is not None:
            self._guide.end()
            self._change_mode(LoopMode.BRAKE, code, reason)
        if self.mode is LoopMode.TRACK and self._present is not None:
            self._next = None
            self._reference.brake(self._present.brake_time)
            self._change_mode(LoopMode.BRAKE, code, reason)

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """Give the controller another model; its torque is blended in. In a reset (another payload) boxes may grow.

        Raises:
            LoopRefusal: The arm moves, or a box is not inside the one in use.
        """
        if self.mode in (LoopMode.TRACK, LoopMode.BRAKE, LoopMode.GUIDE):
            raise LoopRefusal("model", "the arm moves with the model in use; wait until it rests")
        model.require_fits(self.robot)
        if not is_reset:
            model.require_inside(self.model, self.robot)
        has_changed = not np.array_equal(model.payload, self.model.payload)
        self._may_stay &= not (has_changed or is_reset)  # the certificate was for the other one
        self._use_model(model)
        if self.mode is LoopMode.HOLD and has_changed:
            self._output.start_blend(self._output.last)

    def heartbeat(self) -> None:
        """Record a heartbeat of the commanding side."""
        self._heartbeat_ns = self.now_ns

    def report_late(self, lateness: float) -> None:
        """Record that a cycle started ``lateness`` [s] after its deadline, and brake where that is too much."""
        self._missed_deadlines += 1
        if lateness > self.settings.late_limit:
            text = f"a cycle came {1e3 * lateness:.1f} ms late (allowed {1e3 * self.settings.late_limit:g} ms)"
            self.brake(text, LoopCode.MISSED_DEADLINES)

    def release(self, reason: str) -> None:
        """Hand the arm back to its own controller or brakes and disconnect. Brake first where it moves."""
        self.arm.stop(reason)
        self.arm.close()
        if self.mode is not LoopMode.IDLE:
            self._change_mode(LoopMode.IDLE, self._state.code, reason)

    @property
    def mode(self) -> LoopMode:
        """Mode of the loop."""
        return self._state.mode

    @property
    def is_at_rest(self) -> bool:
        """Whether the arm is at rest: held, or not commanded at all."""
        return self.mode in (LoopMode.IDLE, LoopMode.HOLD) or self.is_handed_back

    @property
    def now_ns(self) -> int:
        """Time of the last cycle [ns]."""
        return self._measured.stamp_ns

    def status(self) -> LoopStatus:
        """Return the status of the loop."""
        reference, present = self._reference, self._present
        return LoopStatus(
            mode=self.mode,
            code=self._state.code,
            reason=self._describe(),
            stamp_ns=self.now_ns,
            cycles=self._cycles,
            invalid_cycles=self._invalid_cycles,
            saturated_cycles=self._output.saturated_cycles,
            missed_deadlines=self._missed_deadlines + self.arm.late_answers,
            reference=reference.q.copy(),
            plan_id=None if present is None else present.plan_id,
            next_plan_id=None if self._next is None else self._next.plan_id,
            progress=reference.progress,
            tracking_error=reference.q - self._measured.q,
            tracking_error_max=self._error_max.copy(),
            tracking_bound=np.full(self.robot.n, np.inf) if present is None else present.bounds[0].copy(),
            is_taking_over=self.mode is LoopMode.HOLD and not self._is_undisturbed,
            rested=self._rested,
            model_box_hash=self._box_hash,
            law=self._controller.law,
            transitions=tuple(self._state.transitions),
            online_model=self._controller.status if isinstance(self._controller, OnlineModelController) else None,
            serial_number=self.arm.serial_number,
        )

    def _describe(self) -> str:
        reason, effort_fault = self._state.reason, self._effort_fault
        if self.mode is not LoopMode.HOLD:
            return reason
        if effort_fault is not None:
            reason += f"; no motion may start: {effort_fault.reason}"
        limits, held = self.robot.limits, self._output.last
        if not self._may_stay and np.any(np.abs(held) > limits.tau_continuous):
            heat = find_heat(limits, self._torques.load, Load.none(self.robot.n), held**2)
            if heat is not None and heat.share > 1.0:
                joint = heat.joint
                reason += (
                    f"; this posture may be held for {heat.hold:.0f} s more: {self.robot.joint_names[joint]} needs "
                    f"{abs(held[joint]):.3g} Nm, its continuous limit is {limits.tau_continuous[joint]:.3g} Nm; move "
                    "the arm to another posture, or support it"
                )
        return reason

    @property
    def _is_undisturbed(self) -> bool:
        """Whether the arm is held, and neither torque nor model are being blended."""
        return self.mode is LoopMode.HOLD and max(self._output.blend_left, self._controller.blend_left) <= 0.0

    # One cycle

    def _run_cycle(self, state: ArmState) -> LoopSample:
        self._cycles += 1 + state.missed  # a gap in the numbers, which the estimator must not join
        is_valid = self._take_measurement(state)
        if self.mode in (LoopMode.TRACK, LoopMode.GUIDE):
            self._react(self._guard.find_timeout((self.now_ns - self._heartbeat_ns) * 1e-9))
        reference = self._reference
        reference.advance(self.arm.period)
        if self._guide is not None and self.mode is not LoopMode.FAULT:
            self._follow_hand(self._guide, state.tau if is_valid else None)
        if self._next is not None and not reference.is_continued:
            segment, self._next = self._next, None
            if segment.model is not None:  # takes 0.4 ms; the controller carries its integral state over, nothing jumps
                self._use_model(segment.model)
            self._follow(segment)
        if is_valid and self.mode is not LoopMode.FAULT:
            self._watch_motion()
        if reference.trajectory is not None and reference.is_finished:
            self._come_to_rest()
        tau = self._compute_torque(is_valid)
        has_efforts = self._effort_fault is None
        self._rested = self._rested + self.arm.period if self._is_undisturbed and has_efforts else 0.0
        if not self.is_handed_back:
            self.arm.command(tau)
            self._torques.add(tau)
        self._torque_check.note(tau)
        is_ok = is_valid and state.is_exact and has_efforts and self.mode is not LoopMode.FAULT
        is_ok = is_ok and self._guide is None  # a hand is in the efforts
        return LoopSample(
            self._cycles, state.stamp_ns, is_ok, state.q, state.v, state.tau,
            reference.q, reference.v, reference.a, tau, self.mode,
        )  # fmt: skip

    def _follow_hand(self, guide: HandGuide, effort: Array | None) -> None:
        """Lead the reference for one cycle, with the efforts measured in it, (n,) [Nm]."""
        try:
            led = guide.step(self._measured.q, self._measured.v, effort)
        except Exception as error:  # as with a controller: a failure must not end the loop
            self._enter_fault(f"guiding failed: {error!r}", LoopCode.INTERNAL)
            return
        self._reference.lead(led.q, led.v, led.a)
        if guide.is_over:
            self._come_to_rest()

    def _take_measurement(self, state: ArmState) -> bool:
        fault = self._check.find_fault(state)
        if fault is not None:
            self._bridge_invalid(fault)
            return False
        self._invalid_in_a_row, self._measured = 0, state
        self._effort_fault = self._check.find_effort_fault(state) or self._torque_check.find_mismatch(state.tau)
        self._react(self._effort_fault)
        if state.faults:
            self.brake("the arm reports: " + ", ".join(state.faults), LoopCode.HARDWARE)
        return True

    def _bridge_invalid(self, fault: Fault) -> None:
        """Continue with an extrapolated state for a few cycles."""
        period, settings, last = self.arm.period, self.settings, self._measured
        self._torque_check.restart()
        self._invalid_cycles += 1
        self._invalid_in_a_row += 1
        q = last.q if self.mode is LoopMode.FAULT else last.q + last.v * period
        self._measured = replace(last, q=q, stamp_ns=last.stamp_ns + round(period * 1e9))
        text = f"no usable measurement in {self._invalid_in_a_row} cycles: {fault.reason}"
        if self._invalid_in_a_row >= settings.invalid_cycles_to_brake:
            self._react(Fault(fault.code, text, self._invalid_in_a_row >= settings.invalid_cycles_to_fault))

    def _watch_motion(self) -> None:
        guard, reference, measured, present = self._guard, self._reference, self._measured, self._present
        if reference.trajectory is not None and present is not None:
            error = np.abs(reference.path - measured.q)
            np.maximum(self._error_max, error, out=self._error_max)
            self._react(self._check.find_stuck_joint(reference.q, reference.v, *present.bounds))
            self._react(guard.find_bound_violation(error, present.bounds[0]))
        self._react(guard.find_following_error(reference.q, measured.q))
        self._react(guard.find_overspeed(measured.v))

    def _come_to_rest(self) -> None:
        reason = f"at rest after braking: {self._state.reason}" if self.mode is LoopMode.BRAKE else "trajectory done"
        self._reference.hold(self._reference.q)
        done = self._present if self.mode is LoopMode.TRACK else None
        self._may_stay = done is not None and done.certificate is not None
        self._present = self._guide = None
        self._change_mode(LoopMode.HOLD, self._state.code, reason)

    def _compute_torque(self, is_valid: bool) -> Array:
        """Compute the torque to send, (n,) [Nm]; NaN where the arm has been handed back."""
        reference, output, measured, stop = self._reference, self._output, self._measured, self._stop
        # In motion the tracking bound needs the integral state. At rest it is not needed, and with a motor that does
        # not obey it would grow without end.
        self._controller.is_integrating = self.mode is not LoopMode.HOLD or self._effort_fault is None
        if self.mode is not LoopMode.FAULT:
            try:
                tau = self._controller.compute(measured.q, measured.v, reference.q, reference.v, reference.a)
                tau = output.blend(np.asarray(tau, dtype=float))
            except Exception as error:  # a failure in a controller must not end the loop
                self._enter_fault(f"the controller failed: {error!r}", LoopCode.INTERNAL)
            else:
                if tau.shape == measured.q.shape and is_all_finite(tau):
                    return output.limit(tau)
                text = f"the controller's torque is not one finite number per joint: {tau}"
                self._enter_fault(text, LoopCode.INTERNAL)
        if not self.is_handed_back and stop.is_over(measured.v, is_valid):
            self._hand_back()
        if self.is_handed_back:
            return np.full(self.robot.n, np.nan)
        balance = self._dynamics.gravity(measured.q) + self.model.torque_offset(self.robot)
        return output.limit(stop.torque(balance, measured.v, is_valid))

    # Segments

    def _require_ready(self) -> None:
        """Refuse to start a motion unless the arm is held undisturbed, with efforts that are valid."""
        if self.mode is not LoopMode.HOLD:
            raise LoopRefusal("trajectory", f"the arm must hold its position, but the loop is in {self.mode.name}")
        for left, change in (
            (self._output.blend_left, "torque is still being blended in"),
            (self._controller.blend_left, "the controller still changes to another payload"),
        ):
            if left > 0.0:
                raise LoopRefusal("trajectory", f"{change} for {left:.2f} s; try again then")
        if self._effort_fault is not None:
            raise LoopRefusal("trajectory", self._effort_fault.reason)

    def _start(self, segment: Segment) -> None:
        self._reference.follow(segment.trajectory)
        self._error_max = np.zeros(self.robot.n)
        self.heartbeat()
        self._follow(segment)

    def _continue(self, segment: Segment, certificate: Certificate) -> float:
        """Let a segment wait to take over from the present one, and return how long [s]."""
        reference, present, model = self._reference, self._present, segment.model
        if self.mode is not LoopMode.TRACK or present is None:
            text = f"it continues a motion, but the loop is in {self.mode.name}"
            raise LoopRefusal("trajectory", text, RefusalCode.TOO_LATE)
        if self._next is not None:
            waiting = self._next.plan_id or ""
            raise LoopRefusal("trajectory", f"plan {waiting[:12]} already waits to take over")
        admit_takeover(self.robot, segment.trajectory, certificate, present.trajectory, present.plan_id or "")
        late = reference.time - certificate.takeover_time + self.arm.period
        if late > 0.0:
            text = f"it comes {late:.3f} s too late to take over; the arm follows the present plan, which ends at rest"
            raise LoopRefusal("trajectory", text, RefusalCode.TOO_LATE, late)
        if model is not None:
            model.require_fits(self.robot)
            model.require_inside(self.model, self.robot)
        if certificate.box_hash != box_hash(*self.boxes_of(model)):
            raise LoopRefusal("trajectory", _OTHER_MODEL, RefusalCode.OTHER_ASSUMPTIONS)
        admit_control(certificate, self._controller.law, (model or self.model).payload)
        past = self._torques.load
        if present.certificate is not None:
            left = Load.of_plan(present.certificate.torque_squares, present.trajectory.duration, reference.time)
            past = past.followed_by(left.until(certificate.takeover_time - reference.time))
        admit_load(self.robot, past, segment.trajectory, certificate)
        reference.continue_with(segment.trajectory, certificate.takeover_time)
        self._next = segment
        return -late

    def _follow(self, segment: Segment) -> None:
        self._present = segment
        name = "without a certificate" if segment.plan_id is None else segment.plan_id[:12]
        self._change_mode(LoopMode.TRACK, LoopCode.OK, f"following {segment.trajectory.kind} {name}")

    # Changes of state

    def _change_mode(self, mode: LoopMode, code: LoopCode, reason: str) -> None:
        self._state.change(self.now_ns, mode, code, reason)

    def _react(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault.ends_control:
            self._enter_fault(fault.reason, fault.code, fault.is_blind)
        else:
            self.brake(fault.reason, fault.code)

    def _enter_fault(self, reason: str, code: LoopCode, is_blind: bool = False) -> None:
        if self.mode is not LoopMode.FAULT:
            self._next = self._guide = None
            self._reference.hold(self._measured.q)
            self._stop.start(is_blind)
            self._change_mode(LoopMode.FAULT, code, reason)

    def _hand_back(self) -> None:
        self.arm.stop(self._state.reason)
        self.is_handed_back = True

    def _use_model(self, model: LoopModel) -> None:
        self._controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
        self.model, self._box_hash = model, box_hash(model.theta_box, model.payload_box)
        self._dynamics = ArmDynamics(self.robot, model.theta, model.payload)

    def _read_first_state(self) -> ArmState:
        check, failures = MeasurementCheck(self.robot, self.settings, self.arm.period), 0
        while (fault := check.find_fault(state := self.arm.read())) is not None:
            failures += 1
            if failures >= self.settings.invalid_cycles_to_fault:
                self.arm.stop(fault.reason)
                self.arm.close()
                raise ArmError(f"no usable measurement after connecting: {fault.reason}")
        return state
