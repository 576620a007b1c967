"""The identification procedure: plan, certify, execute, estimate, until a stop rule holds.

This is the sequence of SAFE-ID Algorithm 2 with trajectories that end at rest, free of ROS: the parts that move the arm
and look at it are behind :class:`IdentificationBackend`, so the same procedure runs over topics and services, and in
lock-step with a simulated arm in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.planning.certificate import Certificate
from sysid_ros.core.planning.trajectory import Trajectory


class IdentificationErrorCode(IntEnum):
    """Why an identification ended without an estimate; the same numbers as in the ``Identify`` action."""

    NONE = 0
    BUSY = 1
    NO_SAMPLES = 2
    DRIVER_NOT_READY = 3
    PLAN_FAILED = 4
    CERTIFICATE_REFUSED = 5
    EXECUTION_FAILED = 6
    INCONSISTENT = 7
    CANCELED = 8
    TIMEOUT = 9
    INTERNAL = 10
    INVALID_GOAL = 11
    RESULTS_NOT_WRITTEN = 12


class IdentificationFailed(SysidError):
    """The procedure ended without a result it can stand for.

    Args:
        code: Why, as a number.
        text: Why, in a sentence.
    """

    def __init__(self, code: IdentificationErrorCode, text: str):
        self.code = code
        super().__init__(text)


class Phase(IntEnum):
    """Where the procedure is; the same numbers as in the feedback of the ``Identify`` action."""

    WAITING = 0
    PLANNING = 1
    CERTIFYING = 2
    MOVING = 3
    ESTIMATING = 4
    REPORTING = 5
    STOPPING = 6


@dataclass(frozen=True)
class IdentificationSettings:
    """What the user asks for.

    Attributes:
        trajectories: Largest number of exciting trajectories.
        max_motion_time: Largest total time of motion [s].
        trajectory_duration: Duration of one trajectory [s].
        target_mass_width: Stop as soon as the mass interval is this narrow [kg]; 0 asks for all trajectories.
        shrink_threshold: Stop when a trajectory has shrunk no interval by more than this fraction [-].
        weighing_time: Time at rest before the first motion [s]: what gravity alone tells of the payload already narrows
            the box that the controller and the planners must be ready for; 0 starts at once.
        settle_time: Time at rest after a motion that still counts as data [s].
    """

    trajectories: int = 2
    max_motion_time: float = 15.0
    trajectory_duration: float = 6.0
    target_mass_width: float = 0.0
    shrink_threshold: float = 0.02
    weighing_time: float = 1.0
    settle_time: float = 0.3

    def __post_init__(self) -> None:
        checks = (
            ("trajectories", self.trajectories, 1 <= self.trajectories <= 20, "1 to 20"),
            ("max_motion_time [s]", self.max_motion_time, 0.0 < self.max_motion_time <= 600.0, "above 0, at most 600"),
            ("trajectory_duration [s]", self.trajectory_duration, 1.0 <= self.trajectory_duration <= 30.0, "1 to 30"),
            ("target_mass_width [kg]", self.target_mass_width, 0.0 <= self.target_mass_width < np.inf, "0 or more"),
            ("shrink_threshold [-]", self.shrink_threshold, 0.0 <= self.shrink_threshold < 1.0, "0 to below 1"),
            ("weighing_time [s]", self.weighing_time, 0.0 <= self.weighing_time <= 60.0, "0 to 60"),
            ("settle_time [s]", self.settle_time, 0.0 <= self.settle_time <= 10.0, "0 to 10"),
        )
        for name, value, is_allowed, allowed in checks:
            if not is_allowed:
                raise ParameterOutOfRange(name, value, allowed)
        if self.trajectory_duration > self.max_motion_time:
            allowed = f"at most max_motion_time = {self.max_motion_time} s"
            raise ParameterOutOfRange("trajectory_duration [s]", self.trajectory_duration, allowed)


@dataclass(frozen=True)
class PlannedMotion:
    """An exciting trajectory before it is certified.

    Attributes:
        trajectory: The trajectory; it starts and ends at rest.
        condition_number: Condition number of ``W_e`` (SAFE-ID (30)) [-].
    """

    trajectory: Trajectory
    condition_number: float


@dataclass(frozen=True)
class MotionState:
    """What the arm is doing.

    Attributes:
        is_moving: Whether a trajectory or a brake is being executed.
        has_failed: Whether the last motion did not end as planned.
        progress: Part of the trajectory that is done, 0..1.
        text: In words, for people.
    """

    is_moving: bool
    has_failed: bool
    progress: float
    text: str


@dataclass(frozen=True)
class Progress:
    """One line of progress.

    Attributes:
        phase: Where the procedure is.
        text: In words.
        progress: Part of the whole that is done, 0..1.
        trajectory: Number of the trajectory, from 1; 0 before the first.
        trajectories: How many there may be.
        estimate: Latest estimate, None before the first.
    """

    phase: Phase
    text: str
    progress: float
    trajectory: int
    trajectories: int
    estimate: ParameterEstimate | None


class IdentificationBackend(Protocol):
    """The arm, the planners and the estimator as the procedure needs them.

    Every method raises :class:`IdentificationFailed` with its code when it cannot do its work; one that waits may end
    with the code ``CANCELED`` as soon as the goal is cancelled.
    """

    def check_ready(self) -> None:
        """Returns when the arm holds still and samples arrive."""

    def reset_estimate(self, reason: str) -> None:
        """Forgets earlier data."""

    def plan(
        self, index: int, duration: float, information: NDArray[np.float64], limit_share: float
    ) -> PlannedMotion:
        """Plans the next exciting trajectory from where the arm stands.

        Args:
            index: Number of the trajectory, from 0.
            duration: Its duration [s].
            information: Gram matrix of the data so far, (10, 10).
            limit_share: Share of the speed and acceleration limits it may use [-].
        """

    def certify(self, motion: PlannedMotion) -> Certificate:
        """Checks a trajectory and returns its certificate."""

    def execute(self, motion: PlannedMotion, certificate: Certificate) -> None:
        """Starts a trajectory and returns at once."""

    def motion_state(self) -> MotionState:
        """What the arm is doing now."""

    def brake(self, reason: str) -> None:
        """Brings the arm to rest along its path."""

    def estimate(self) -> ParameterEstimate | None:
        """The latest estimate, None before the first."""

    def information(self) -> NDArray[np.float64]:
        """Gram matrix (10, 10) of the data so far."""

    def settle(self, duration: float) -> None:
        """Stays at rest for a while [s] and returns when the estimate covers all samples up to then."""

    def wait(self, duration: float) -> None:
        """Lets time pass [s]."""


@dataclass(frozen=True)
class Identification:
    """Outcome of a successful procedure.

    Attributes:
        estimate: The final estimate.
        motions: The trajectories that were executed.
        certificates: Their certificates.
        motion_time: Total time of motion [s].
        stop_reason: Which stop rule ended it.
    """

    estimate: ParameterEstimate
    motions: tuple[PlannedMotion, ...]
    certificates: tuple[Certificate, ...]
    motion_time: float
    stop_reason: str


POLL_PERIOD = 0.1
"""Time between two looks at the arm while it moves [s]."""
LIMIT_SHARES = (1.0, 0.75, 0.5)
"""Shares of the speed and acceleration limits that are tried until a plan is certified [-]."""
MOTION_GRACE = 2.0
"""How much longer than planned a motion may take before it counts as failed [s]."""


def run_identification(
    backend: IdentificationBackend,
    settings: IdentificationSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Identification:
    """Identifies the payload; on any failure the arm is braked before the error leaves this function.

    Args:
        backend: The arm, the planners and the estimator.
        settings: What the user asks for.
        is_cancelled: Looked at between all steps and while the arm moves.
        on_progress: Called with every change.

    Raises:
        IdentificationFailed: With the code and a sentence.

    Source: SAFE-ID Algorithm 2, with a stop between the trajectories.
    """
    return _Procedure(backend, settings, is_cancelled, on_progress).run()


class _Procedure:
    def __init__(
        self,
        backend: IdentificationBackend,
        settings: IdentificationSettings,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        self._backend = backend
        self._settings = settings
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._motions: list[PlannedMotion] = []
        self._certificates: list[Certificate] = []
        self._motion_time = 0.0
        self._progress = 0.0

    def run(self) -> Identification:
        self._report(Phase.WAITING, "waiting for the arm and its samples", 0.0)
        try:
            self._backend.check_ready()
            self._backend.reset_estimate("identification starts")
            self._weigh()
            stop_reason = self._run_trajectories()
            estimate = self._final_estimate()
        except IdentificationFailed as failure:
            self._stop(str(failure))
            raise
        except Exception as error:
            self._stop(f"internal error: {error}")
            raise
        return Identification(estimate, tuple(self._motions), tuple(self._certificates), self._motion_time, stop_reason)

    def _weigh(self) -> None:
        if self._settings.weighing_time > 0.0:
            self._report(Phase.ESTIMATING, "weighing at rest", 0.0)
            self._backend.settle(self._settings.weighing_time)
            self._require_consistent(self._backend.estimate())
            self._require_not_cancelled()

    def _run_trajectories(self) -> str:
        settings = self._settings
        widths: NDArray[np.float64] | None = None
        for index in range(settings.trajectories):
            if self._motion_time + settings.trajectory_duration > settings.max_motion_time + 1e-9:
                return f"the next trajectory would exceed {settings.max_motion_time:g} s of motion"
            self._run_trajectory(index)
            estimate = self._final_estimate()
            if estimate.upper[0] - estimate.lower[0] <= settings.target_mass_width:
                return f"the mass interval is narrower than {settings.target_mass_width:g} kg"
            new_widths = estimate.upper - estimate.lower
            if widths is not None and np.all(new_widths >= (1.0 - settings.shrink_threshold) * widths):
                return f"the last trajectory shrank no interval by more than {100 * settings.shrink_threshold:g} %"
            widths = new_widths
        return f"all {settings.trajectories} trajectories are done"

    def _run_trajectory(self, index: int) -> None:
        backend = self._backend
        motion, certificate = self._plan_certified(index)
        backend.execute(motion, certificate)
        self._motions.append(motion)
        self._certificates.append(certificate)
        self._follow(index, motion)

    def _plan_certified(self, index: int) -> tuple[PlannedMotion, Certificate]:
        """Plans until a plan is certified: how large tracking errors can get is known only once there is a motion."""
        *faster, slowest = LIMIT_SHARES
        text = "planning an exciting trajectory"
        for limit_share in faster:
            try:
                return self._plan_once(index, limit_share, text)
            except IdentificationFailed as refusal:
                if refusal.code != IdentificationErrorCode.CERTIFICATE_REFUSED:
                    raise
                text = f"planning a slower one ({refusal})"
        return self._plan_once(index, slowest, text)

    def _plan_once(self, index: int, limit_share: float, text: str) -> tuple[PlannedMotion, Certificate]:
        backend = self._backend
        self._report(Phase.PLANNING, text, self._fraction(index))
        motion = backend.plan(index, self._settings.trajectory_duration, backend.information(), limit_share)
        self._require_not_cancelled()
        checking = f"checking it (condition number {motion.condition_number:.1f})"
        self._report(Phase.CERTIFYING, checking, self._fraction(index))
        certificate = backend.certify(motion)
        self._require_not_cancelled()
        return motion, certificate

    def _follow(self, index: int, motion: PlannedMotion) -> None:
        deadline = motion.trajectory.duration + MOTION_GRACE
        elapsed = 0.0
        while True:
            self._backend.wait(POLL_PERIOD)
            elapsed += POLL_PERIOD
            self._require_not_cancelled()
            state = self._backend.motion_state()
            if state.has_failed:
                raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, state.text)
            estimate = self._backend.estimate()
            self._require_consistent(estimate)
            if not state.is_moving and elapsed > 5 * POLL_PERIOD:
                break
            if elapsed > deadline:
                raise IdentificationFailed(
                    IdentificationErrorCode.TIMEOUT,
                    f"the arm still moves {elapsed:.1f} s after the start of a trajectory of "
                    f"{motion.trajectory.duration:.1f} s",
                )
            self._report(Phase.MOVING, "moving", self._fraction(index + state.progress))
        self._motion_time += motion.trajectory.duration
        self._report(Phase.ESTIMATING, "at rest, evaluating", self._fraction(index + 1))
        self._backend.settle(self._settings.settle_time)

    def _final_estimate(self) -> ParameterEstimate:
        estimate = self._backend.estimate()
        if estimate is None:
            raise IdentificationFailed(
                IdentificationErrorCode.NO_SAMPLES, "the estimator has published no estimate although the arm moved"
            )
        self._require_consistent(estimate)
        return estimate

    def _require_consistent(self, estimate: ParameterEstimate | None) -> None:
        if estimate is not None and not estimate.is_consistent:
            raise IdentificationFailed(IdentificationErrorCode.INCONSISTENT, estimate.alarm)

    def _require_not_cancelled(self) -> None:
        if self._is_cancelled():
            raise IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")

    def _stop(self, reason: str) -> None:
        self._report(Phase.STOPPING, "bringing the arm to rest", self._progress)
        self._backend.brake(reason)

    def _fraction(self, done: float) -> float:
        return min(1.0, done / self._settings.trajectories)

    def _report(self, phase: Phase, text: str, progress: float) -> None:
        self._progress = progress
        self._on_progress(
            Progress(phase, text, progress, len(self._motions), self._settings.trajectories, self._backend.estimate())
        )
