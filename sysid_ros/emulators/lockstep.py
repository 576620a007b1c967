"""Loops and the identification procedure in lock-step with a simulated arm: without ROS and clock, as fast as it goes.

Planner, estimator, loop and scene guard are the nodes' own, called in the same order and with the data known by then.
Simulated time passes only where the procedure waits, and while it plans for the configured time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.procedure import (
    CertifiedPlan,
    ExcitationRequest,
    IdentificationErrorCode,
    IdentificationFailed,
    ModelPolicy,
    ModelRefused,
    MotionRequest,
    MotionState,
    PayloadModel,
    Ports,
    StopUnconfirmed,
    TareStep,
)
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.admission import SceneGuard
from sysid_ros.drivers.channel import LoopSamples, collect_samples
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopModel, LoopRefusal, LoopSample

Array = NDArray[np.float64]


def run_for(loop: ControlLoop, duration: float) -> LoopSamples:
    """Run a connected loop for a simulated time [s], with a heartbeat in every cycle; return the usable samples."""
    return collect_samples(_step(loop, round(duration / loop.arm.period)), loop.robot.n)


def run_trajectory(
    loop: ControlLoop, trajectory: Trajectory, certificate: Certificate | None, settle: float = 0.0
) -> LoopSamples:
    """Execute a trajectory until the arm rests again, and for ``settle`` [s] more.

    Returns:
        The usable samples from the start of the trajectory on.

    Raises:
        LoopRefusal: It may not be executed.
    """
    loop.execute(trajectory, certificate)
    samples: list[LoopSample] = []
    while loop.mode in (LoopMode.TRACK, LoopMode.BRAKE):
        samples += _step(loop, 1)
    return collect_samples(samples + _step(loop, round(settle / loop.arm.period)), loop.robot.n)


def _step(loop: ControlLoop, cycles: int) -> list[LoopSample]:
    samples = []
    for _ in range(cycles):
        loop.heartbeat()
        sample = loop.step()
        if sample is not None:
            samples.append(sample)
    return samples


_LONGEST_STOP = 5.0
"""Longest simulated time until an arm that brakes, or is taken over, rests [s]."""


@dataclass(frozen=True)
class LockstepSettings:
    """Timing of the procedure."""

    planning_times: tuple[float, ...] = (0.0,)
    """Simulated times that planning takes, used in turn [s]."""
    time_limit: float = 1.3
    """Time of the real clock after which a plan must be there [s]."""
    first_time_limit: float = 10.0
    """The same for a start from rest [s]."""
    estimate_period: float = 0.5
    """Time between two published estimates [s], as of the node ``estimator``, so that data are as old as there."""
    batch: int = 20
    """Samples that reach the estimator together."""
    check_time: float = 0.45
    """Time before its takeover at which a plan must be there [s]; as of a driver before its first proof."""


@dataclass(frozen=True)
class PlanAttempt:
    """One request for a plan at a time [ns], and the plan or why there is none."""

    stamp_ns: int
    request: MotionRequest
    plan: CertifiedPlan | None
    failure: PlanFailure | None


@dataclass
class LockstepRecords:
    """Requests for plans, refusals of the loop, and notices of the estimator, in a run."""

    attempts: list[PlanAttempt] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    """``plan_id`` of the plans that were accepted by the loop, in order."""
    refusals: list[LoopRefusal] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    estimates: list[tuple[int, ParameterEstimate]] = field(default_factory=list)
    """Published estimates, with their times [ns]."""
    models: list[tuple[int, LoopModel]] = field(default_factory=list)
    """Models given to the loop, with the time of the request [ns]; including plans that take over."""


class LockstepBackend:
    """Planner, arm and source of estimates of a procedure in simulated time; not with the strategy "periodic".

    Args:
        loop: The loop with its arm; connected here if it is not.
        planner: Plans and proves.
        estimator: Takes the samples.
        scene: Environment of the arm.
        settings: Timing.
        on_cycle: Called after every cycle, with None where there was no sample; may change the arm or the scene.

    Attributes:
        records: Records of the run.
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
        self._guard = SceneGuard(Scene())
        self._guard.update(self._scene)
        self._buffer: list[LoopSample] = []
        self._estimate_ns, self._next_estimate_ns = 0, 0
        self._estimate: ParameterEstimate | None = None
        self._information = np.zeros((10, 10))
        self._begins_ns: dict[CertifiedPlan, int] = {}  # plans that were executed, in order

    @property
    def ports(self) -> Ports:
        """This backend as the ports of a procedure."""
        return Ports(self, self, self)

    def make_policy(self) -> ModelPolicy:
        """Make a policy that begins with the model of the loop."""
        model = self._loop.model
        return ModelPolicy(self._loop.robot, PayloadModel(model.payload_box, model.payload))

    def change_scene(self, scene: Scene) -> None:
        """Change the environment of the arm: the loop brakes where the present motion was not certified for it."""
        self._scene = scene
        reason = self._guard.update(scene)
        if reason is not None:
            self._loop.brake(reason, LoopCode.STALE)

    # Planner

    def plan(self, request: MotionRequest) -> CertifiedPlan:
        """See :class:`sysid_ros.core.procedure.Planner`."""
        settings, before = self._settings, request.predecessor
        wanted = PlanRequest(
            self._assume(request.model),
            start=request.start,
            predecessor=before,
            takeover_time=0.0 if before is None or before.handover_time is None else before.handover_time,
            information=request.information,
            goal=request.goal,
            time_limit=settings.first_time_limit if before is None else settings.time_limit,
        )
        now, plan, failure = self._loop.now_ns, None, None
        try:
            plan = self._planner.plan(wanted, 1e-9 * now)
        except PlanFailure as no_plan:
            failure = no_plan
        self.records.attempts.append(PlanAttempt(now, request, plan, failure))
        self._advance(next(self._planning_times))
        if plan is None:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, str(failure))
        return plan

    def plan_excitation(self, request: ExcitationRequest) -> tuple[Trajectory, float]:
        """Refuse: not offered."""
        raise IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, "the strategy 'periodic' does not run here")

    def certify(self, trajectory: Trajectory, model: PayloadModel) -> CertifiedPlan:
        """See :class:`sysid_ros.core.procedure.Planner`."""
        try:
            plan = self._planner.certify(trajectory, self._assume(model), 1e-9 * self._loop.now_ns)
        except (PlanRejected, BoundNotAvailable) as refusal:
            raise IdentificationFailed(IdentificationErrorCode.CERTIFICATE_REFUSED, str(refusal)) from refusal
        self._advance(next(self._planning_times))
        return plan

    def _assume(self, model: PayloadModel) -> Assumptions:
        robot = self._loop.robot
        law = RobustSettings.of_law(self._loop.status().law)
        return Assumptions(robot, (robot.theta_box, model.box), model.nominal, self._scene, law)

    # Arm

    @property
    def check_time(self) -> float:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        return self._settings.check_time

    def wait_until_ready(self) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        if self._loop.mode is LoopMode.IDLE:
            self._loop.connect()
        self._wait_for_hold()

    def posture(self) -> Array:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        return self._loop.status().reference

    def set_model(self, model: PayloadModel, is_reset: bool = False) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        loop_model = self._model_of(model)
        try:
            self._loop.set_model(loop_model, is_reset)
        except LoopRefusal as refusal:
            self.records.refusals.append(refusal)
            raise ModelRefused(str(refusal)) from refusal
        self.records.models.append((self._loop.now_ns, loop_model))

    def wait_until_holding(self, model: PayloadModel) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        self._wait_for_hold()

    def execute(self, plan: CertifiedPlan, model: PayloadModel | None = None) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        certificate, loop_model = plan.certificate, None
        if plan.predecessor is not None:
            loop_model = None if model is None else self._model_of(model)
        else:
            self._advance_until(lambda: self._loop.status().rested >= certificate.rest_before)
        try:
            now = 1e-9 * self._loop.now_ns
            self._guard.find_conflict("lock-step", now)
            self._guard.admit(certificate, now)
            self._loop.execute(plan.trajectory, certificate, loop_model)
        except LoopRefusal as refusal:
            self.records.refusals.append(refusal)
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, str(refusal)) from refusal
        self.records.executed.append(plan.plan_id)
        begin_ns = self._loop.now_ns
        if plan.predecessor is not None:
            begin_ns = list(self._begins_ns.values())[-1] + round(1e9 * plan.takeover_time)
        self._begins_ns[plan] = begin_ns
        if loop_model is not None:
            self.records.models.append((self._loop.now_ns, loop_model))

    def has_begun(self, plan: CertifiedPlan) -> bool:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        is_time = self._loop.now_ns >= self._begins_ns.get(plan, np.inf)
        return is_time and self._loop.status().plan_id == plan.plan_id

    def begin_ns(self, plan: CertifiedPlan) -> int | None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        return self._begins_ns.get(plan)

    def now_ns(self) -> int:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        return self._loop.now_ns

    def motion_state(self) -> MotionState:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        status = self._loop.status()
        return MotionState(status.is_moving, status.has_failed, status.progress, status.reason)

    def brake(self, reason: str) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        self._loop.brake(reason)
        self._advance_until(lambda: self._loop.is_at_rest)
        if not self._loop.is_at_rest:
            raise StopUnconfirmed(f"the arm moves {_LONGEST_STOP:g} s after the brake command")

    def wait(self, duration: float) -> None:
        """See :class:`sysid_ros.core.procedure.Arm`."""
        self._advance(duration)

    # Source of estimates

    def reset(self, reason: str, tare: TareStep = TareStep.KEEP) -> None:
        """See :class:`sysid_ros.core.procedure.EstimateSource`."""
        if tare is TareStep.END:
            self._estimator.end_tare()
        self.records.notices.append(self._estimator.reset(reason))
        if tare is TareStep.BEGIN:
            self._estimator.begin_tare()
        self._buffer.clear()
        self._estimate, self._information = None, np.zeros((10, 10))

    def latest(self) -> ParameterEstimate | None:
        """See :class:`sysid_ros.core.procedure.EstimateSource`."""
        return self._estimate

    def information(self) -> Array:
        """See :class:`sysid_ros.core.procedure.EstimateSource`."""
        return self._information

    def stamp_ns(self) -> int:
        """See :class:`sysid_ros.core.procedure.EstimateSource`."""
        return self._estimate_ns

    def catch_up(self) -> None:
        """See :class:`sysid_ros.core.procedure.EstimateSource`."""
        self._feed()
        self._publish()

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

    def _model_of(self, model: PayloadModel) -> LoopModel:
        robot = self._loop.robot
        return LoopModel(robot.theta_nominal, robot.theta_box, model.nominal, model.box)

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
