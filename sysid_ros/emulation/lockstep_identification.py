"""The identification procedure in lock-step with a simulated arm: the procedure of the nodes, without ROS and clock.

Planner, estimator, loop and scene guard are those of the nodes, and they are asked in the same order and with what was
known by then. Simulated time passes only where the procedure waits, and while it plans as long as it is told to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning import certified_planner
from sysid_ros.core.planning.certified_planner import CertifiedPlanner, NextPlan, NoPlan, PayloadKnowledge
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    MotionState,
    PlannedMotion,
    PlannedPart,
)
from sysid_ros.core.tracking_bound.nominal_payload import weighed_payload
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_model import Continuation, LoopModel
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopRefusal, LoopSample
from sysid_ros.drivers.samples import collect_samples
from sysid_ros.drivers.scene_guard import SceneGuard

Array = NDArray[np.float64]

_LONGEST_STOP = 5.0
"""Longest simulated time until an arm that brakes, or is taken over, rests [s]."""


@dataclass(frozen=True)
class LockstepSettings:
    """Timing of the procedure.

    Attributes:
        planning_times: Simulated times that planning takes, used in turn [s].
        time_limit: Time of the real clock after which a plan must be there [s].
        first_time_limit: The same for a start from rest [s].
        estimate_period: Time between two estimates that the others get to know [s]; that of the node ``estimator``, so
            what a plan is asked for with is as old as there.
        batch: Samples that reach the estimator together.
    """

    planning_times: tuple[float, ...] = (0.0,)
    time_limit: float = 1.3
    first_time_limit: float = 10.0
    estimate_period: float = 0.5
    batch: int = 20


@dataclass(frozen=True)
class PlanAttempt:
    """One request for a plan.

    Attributes:
        stamp_ns: When it was asked for [ns].
        after: Hash of the plan it takes over from; empty for a start from rest.
        payload: What was known of the payload.
        part: What was planned; None where there was no plan.
        reason: Why not.
    """

    stamp_ns: int
    after: str
    payload: PayloadKnowledge
    part: certified_planner.PlannedPart | None
    reason: str = ""


@dataclass
class LockstepRecords:
    """What happened.

    Attributes:
        attempts: All requests for plans.
        executed: Hashes of the plans that were accepted by the loop, in order.
        refusals: What the loop or the scene guard refused, in sentences.
        notices: What the estimator said.
        estimates: Estimates that the others got to know, and when [ns].
        models: Models the loop was given, with the time of the request [ns]; those of plans that take over included.
    """

    attempts: list[PlanAttempt] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    estimates: list[tuple[int, ParameterEstimate]] = field(default_factory=list)
    models: list[tuple[int, LoopModel]] = field(default_factory=list)


class LockstepBackend:
    """An :class:`sysid_ros.core.procedure.IdentificationBackend` for the strategy "receding".

    Args:
        loop: The loop with its arm; connected here if it is not.
        planner: Plans and proves.
        estimator: Takes the samples.
        scene: What surrounds the arm.
        settings: Timing.
        on_cycle: Called after every cycle, with None where there was no sample; may change the arm or the scene.

    Attributes:
        records: What happened.
    """

    def __init__(
        self,
        loop: ControlLoop,
        planner: CertifiedPlanner,
        estimator: StreamingEstimator,
        scene: Scene | None = None,
        settings: LockstepSettings | None = None,
        on_cycle: Callable[[LoopSample | None], None] = lambda sample: None,
    ):
        self.records = LockstepRecords()
        self._loop, self._planner, self._estimator = loop, planner, estimator
        self._settings = settings or LockstepSettings()
        self._on_cycle = on_cycle
        self._planning_times: Iterator[float] = itertools.cycle(self._settings.planning_times)
        self._scene = scene or Scene()
        self._guard = SceneGuard()
        self._guard.see(self._scene)
        self._buffer: list[LoopSample] = []
        self._estimate_ns, self._next_estimate_ns = 0, 0
        self._estimate: ParameterEstimate | None = None
        self._information = np.zeros((10, 10))
        self._box: Box | None = None
        # What the controller takes for true stays the same while bounds shrink: changing it would cost tracking bound.
        self._nominal = loop.model.payload
        self._parts: dict[PlannedPart, PlanAttempt] = {}
        self._begins_ns: dict[PlannedPart, int] = {}

    def change_scene(self, scene: Scene) -> None:
        """Another scene is seen: the loop brakes where the present motion was not certified for it."""
        self._scene = scene
        reason = self._guard.see(scene)
        if reason:
            self._loop.brake(reason, LoopCode.STALE)

    # IdentificationBackend

    def check_ready(self) -> None:
        """See :class:`IdentificationBackend`."""
        if self._loop.mode is LoopMode.IDLE:
            self._loop.connect()
        self._wait_for_hold()

    def reset_estimate(self, reason: str) -> None:
        """See :class:`IdentificationBackend`."""
        robot = self._loop.robot
        self._set_model(LoopModel.nominal(robot), is_reset=True)
        self._nominal, self._box = self._loop.model.payload, None
        self._wait_for_hold()
        self.records.notices.append(self._estimator.reset(reason))
        self._buffer.clear()
        self._estimate, self._information = None, np.zeros((10, 10))

    def plan(self, index: int, duration: float, information: Array, limit_share: float) -> PlannedMotion:
        """Not offered."""
        raise IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, "only the strategy 'receding' runs here")

    def certify(self, motion: PlannedMotion) -> Certificate:
        """Not offered."""
        raise IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, "only the strategy 'receding' runs here")

    def execute(self, motion: PlannedMotion, certificate: Certificate) -> None:
        """Not offered."""
        raise IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, "only the strategy 'receding' runs here")

    def plan_next(self, before: PlannedPart | None, information: Array, goal: Array | None = None) -> PlannedPart:
        """See :class:`IdentificationBackend`; the box of the model gets smaller with every part."""
        knowledge = self._knowledge()
        if before is None:
            if not self.records.attempts:  # weighed, and nothing has moved yet
                boxes = (self._loop.robot.theta_box, knowledge.box)
                self._nominal = weighed_payload(self._loop.robot, boxes, self._nominal, self._loop.status().reference)
                knowledge = self._knowledge()
            self._set_model(self._model_of(knowledge))
            self._box = knowledge.box
            self._wait_for_hold()
        settings = self._settings
        wanted = NextPlan(
            payload=knowledge,
            start=self._loop.status().reference if before is None else None,
            after="" if before is None else before.motion.trajectory.hash(),
            at=0.0 if before is None else before.takeover_time,
            information=information,
            goal=goal,
            time_limit=settings.first_time_limit if before is None else settings.time_limit,
        )
        now, part, reason = self._loop.now_ns, None, ""
        try:
            part = self._planner.plan(wanted, self._scene, 1e-9 * now)
        except NoPlan as failure:
            reason = str(failure)
        attempt = PlanAttempt(now, wanted.after, knowledge, part, reason)
        self.records.attempts.append(attempt)
        self._advance(next(self._planning_times))
        if part is None:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, reason)
        trajectory, certificate = part.plan.trajectory, part.plan.certificate
        motion = PlannedMotion(trajectory, part.condition_number)
        gained = part.information - np.asarray(information)
        planned = PlannedPart(motion, certificate, self._planner.settings.planning_time, gained)
        self._parts[planned] = attempt
        return planned

    def execute_next(self, part: PlannedPart, before: PlannedPart | None) -> None:
        """See :class:`IdentificationBackend`."""
        trajectory, certificate = part.motion.trajectory, part.certificate
        knowledge = self._parts.pop(part).payload
        continuation = None
        if before is not None:
            model = self._model_of(knowledge)
            continuation = Continuation(before.motion.trajectory.hash(), before.takeover_time, model)
        if certificate.control is not None and before is None:
            self._advance_until(lambda: self._loop.status().rested >= certificate.control.rest_before)
        try:
            self._guard.admit(certificate, accepts_sampled=False)
            self._loop.execute(trajectory, certificate, continuation)
        except LoopRefusal as refusal:
            self.records.refusals.append(str(refusal))
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, str(refusal)) from refusal
        self.records.executed.append(trajectory.hash())
        self._begins_ns[part] = (
            self._loop.now_ns if before is None else self._begins_ns[before] + round(1e9 * before.takeover_time)
        )
        if continuation is not None:
            self._box = knowledge.box
            self.records.models.append((self._loop.now_ns, continuation.model))

    def is_followed(self, part: PlannedPart) -> bool:
        """See :class:`IdentificationBackend`."""
        has_begun = self._loop.now_ns >= self._begins_ns.get(part, np.inf)
        return has_begun and self._loop.status().plan_hash == part.motion.trajectory.hash()

    def time_until_takeover(self, part: PlannedPart) -> float:
        """See :class:`IdentificationBackend`, in the time of the loop; infinite for a part that was not started."""
        begin_ns = self._begins_ns.get(part)
        return np.inf if begin_ns is None else part.takeover_time - 1e-9 * (self._loop.now_ns - begin_ns)

    def share_to_come(self, part: PlannedPart) -> float:
        """See :class:`IdentificationBackend`."""
        begin_ns = self._begins_ns.get(part)
        return 1.0 if begin_ns is None else part.share_after(1e-9 * (self._estimate_ns - begin_ns))

    def motion_state(self) -> MotionState:
        """See :class:`IdentificationBackend`."""
        status = self._loop.status()
        return MotionState(status.is_moving, status.has_failed, status.progress, status.reason)

    def brake(self, reason: str) -> None:
        """See :class:`IdentificationBackend`."""
        self._loop.brake(reason)
        self._advance_until(lambda: self._loop.is_at_rest)

    def estimate(self) -> ParameterEstimate | None:
        """See :class:`IdentificationBackend`."""
        return self._estimate

    def information(self) -> Array:
        """See :class:`IdentificationBackend`."""
        return self._information

    def settle(self, duration: float) -> None:
        """See :class:`IdentificationBackend`."""
        self._advance(duration)
        self._feed()
        self._publish()

    def wait(self, duration: float) -> None:
        """See :class:`IdentificationBackend`."""
        self._advance(duration)

    # What is known

    def _knowledge(self) -> PayloadKnowledge:
        """The latest estimate with the box of the model in use: both hold, and a model may only get tighter."""
        estimate = self._estimate
        if estimate is None or not estimate.is_consistent:
            return PayloadKnowledge(self._loop.model.payload_box, self._nominal)
        box = estimate.box if self._box is None else estimate.box.intersect(self._box)
        if box is None:
            raise IdentificationFailed(
                IdentificationErrorCode.INCONSISTENT, "the estimate contradicts the bounds of the model in use"
            )
        return PayloadKnowledge(box, self._nominal)

    def _model_of(self, knowledge: PayloadKnowledge) -> LoopModel:
        robot = self._loop.robot
        return LoopModel(robot.theta_nominal, robot.theta_box, knowledge.nominal, knowledge.box)

    def _set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        try:
            self._loop.set_model(model, is_reset)
        except LoopRefusal as refusal:
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, str(refusal)) from refusal
        self.records.models.append((self._loop.now_ns, model))

    def _feed(self) -> None:
        block = collect_samples(self._buffer, self._loop.robot.n).block
        self._buffer.clear()
        if len(block):
            self.records.notices.extend(self._estimator.add(block))

    def _publish(self) -> None:
        self._estimate, self._information = self._estimator.estimate(), self._estimator.information()
        self._estimate_ns = self._loop.now_ns
        self._next_estimate_ns = self._estimate_ns + round(1e9 * self._settings.estimate_period)
        self.records.estimates.append((self._loop.now_ns, self._estimate))

    # Time

    def _advance(self, duration: float) -> None:
        for _ in range(round(duration / self._loop.arm.period)):
            self._cycle()

    def _advance_until(self, condition: Callable[[], bool]) -> None:
        left = round(_LONGEST_STOP / self._loop.arm.period)
        while not condition() and left > 0:
            self._cycle()
            left -= 1

    def _wait_for_hold(self) -> None:
        def is_holding() -> bool:
            status = self._loop.status()
            return status.mode is LoopMode.HOLD and not status.is_taking_over

        self._advance_until(is_holding)
        if not is_holding():
            text = f"the arm does not hold: {self._loop.status().reason}"
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, text)

    def _cycle(self) -> None:
        self._loop.heartbeat()
        sample = self._loop.step()
        if sample is not None:
            self._buffer.append(sample)
        if len(self._buffer) >= self._settings.batch:
            self._feed()
            if self._loop.now_ns >= self._next_estimate_ns:
                self._publish()
        self._on_cycle(sample)
