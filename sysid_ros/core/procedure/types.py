"""What the identification procedure works with: settings, progress, errors, and the arm as it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.trajectories.serialization import Trajectory


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


STRATEGIES = ("receding", "periodic", "observe")


@dataclass(frozen=True)
class IdentificationSettings:
    """What the user asks for.

    Attributes:
        strategy: How the arm is moved, one of :data:`STRATEGIES`: "receding" by plans that take over from each other in
            motion (SAFE-ID Algorithm 2), "periodic" by trajectories that end at rest, "observe" not at all: somebody
            else moves it, and is watched.
        trajectories: Largest number of exciting trajectories; 0 for as many as the time allows.
        max_motion_time: Largest total time of motion [s]; how long an arm is watched that somebody else moves.
        trajectory_duration: Duration of one periodic trajectory [s].
        target_mass_width: Stop as soon as the mass interval is this narrow [kg]; 0 asks for all trajectories.
        shrink_threshold: Stop when a trajectory has shrunk no interval by more than this fraction [-].
        weighing_time: Time at rest before the first motion [s]: what gravity alone tells of the payload already narrows
            the box that the controller and the planners must be ready for; 0 starts at once.
        settle_time: Time at rest after a motion that still counts as data [s]. A motion from rest has a tracking bound
            only where the controller has settled, which takes about a second.
    """

    strategy: str = "receding"
    trajectories: int = 0
    max_motion_time: float = 15.0
    trajectory_duration: float = 6.0
    target_mass_width: float = 0.0
    shrink_threshold: float = 0.02
    weighing_time: float = 1.0
    settle_time: float = 1.2

    def __post_init__(self) -> None:
        checks = (
            ("strategy", self.strategy, self.strategy in STRATEGIES, f"one of {', '.join(STRATEGIES)}"),
            ("trajectories", self.trajectories, 0 <= self.trajectories <= 100, "0 to 100"),
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
        if self.strategy == "periodic" and self.trajectory_duration > self.max_motion_time:
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


@dataclass(frozen=True, eq=False)
class PlannedPart:
    """A certified part of a motion, from which another may take over.

    Parts are the same only if they are one object: an arm that cannot move rests several times alike.

    Attributes:
        motion: The trajectory; it ends at rest.
        certificate: Its certificate.
        takeover_time: Time at which the next part may take over [s].
        gained: Gram matrix that the part until then will add, (10, 10).
    """

    motion: PlannedMotion
    certificate: Certificate
    takeover_time: float
    gained: NDArray[np.float64]

    def share_after(self, seen: float) -> float:
        """Share of what it gains that lies later than a time after its begin [s], 0..1, as if it came evenly."""
        return float(np.clip(1.0 - seen / self.takeover_time, 0.0, 1.0))


class IdentificationBackend(Protocol):
    """The arm, the planners and the estimator as the procedure needs them.

    Every method raises :class:`IdentificationFailed` with its code when it cannot do its work; one that waits may end
    with the code ``CANCELED`` as soon as the goal is cancelled.
    """

    def check_ready(self) -> None:
        """Returns when the arm holds still and samples arrive."""

    def reset_estimate(self, reason: str) -> None:
        """Forgets earlier data."""

    def plan(self, index: int, duration: float, information: NDArray[np.float64], limit_share: float) -> PlannedMotion:
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

    def plan_next(
        self, before: PlannedPart | None, information: NDArray[np.float64], goal: NDArray[np.float64] | None = None
    ) -> PlannedPart:
        """Plans and certifies the next part of a motion, in time.

        Args:
            before: The part it takes over from; None starts from rest, where the arm stands.
            information: Gram matrix of the data that will have been collected by then, (10, 10).
            goal: Posture to get to, (n,) [rad]; None for an exciting motion.
        """

    def execute_next(self, part: PlannedPart, before: PlannedPart | None) -> None:
        """Starts a part, or lets it take over from the one before, and returns at once."""

    def is_followed(self, part: PlannedPart) -> bool:
        """Whether the arm follows this part now."""

    def time_until_takeover(self, part: PlannedPart) -> float:
        """Time until another part has to take over from this one [s]; long for a part that was not started."""

    def share_to_come(self, part: PlannedPart) -> float:
        """Share of what a part gains that is not in :meth:`information` yet, 0..1; 1 before it has begun."""

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
