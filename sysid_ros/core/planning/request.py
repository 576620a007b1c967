"""Requests to a planner, settings of its search, and reasons for failure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory
from sysid_ros.core.trajectories.base import State, joint_vector

COSTS = ("condition", "determinant", "bounds")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class RecedingSettings(Settings):
    """Settings of :class:`sysid_ros.core.planning.planner.CertifiedPlanner`."""

    duration: float = setting(3.0, "s", lower=0.2, upper=20.0)
    """Duration t_f of a plan, its stop included."""
    planning_time: float = setting(1.5, "s", lower=0.05, upper=10.0)
    """Time t_p after which the next plan takes over; also the time to plan it in."""
    k_range: float = setting(math.pi / 2.0, "rad", lower=1e-3, upper=2.0 * math.pi)
    """Largest distance of a joint's end position from that of its minimum-acceleration stop; joint limits make it
    smaller where they must."""
    cost: str = setting("condition", choices=COSTS)
    """Cost of exciting plans: the condition number of the information (SAFE-ID (30)), its determinant, or
    the expected width of the bounds."""
    window: float = setting(0.1, "s", lower=0.005, upper=5.0)
    """Length of the momentum windows the data will be cut into."""
    velocity_fraction: float = setting(0.99, "-", lower=0.01, upper=1.0, library_only=True)
    """Fraction of the velocity limits that may be used, tracking error included."""
    acceleration_fraction: float = setting(0.99, "-", lower=0.01, upper=1.0, library_only=True)
    """Fraction of the acceleration limits that may be used."""
    torque_fraction: float = setting(0.98, "-", lower=0.01, upper=1.0)
    """Fraction of the torque limits that may be used at the samples, everything included."""
    position_margin: float = setting(0.002, "rad", lower=0.0, upper=0.5)
    """Distance that plans keep from position limits besides the tracking error, as room for a later plan with a less
    certain payload."""
    distance_margin: float = setting(0.003, "m", lower=0.0, upper=0.5)
    """Distance plans keep to everything besides clearance and tracking error, for the same reason."""
    brake_time: float = setting(2.0, "s", lower=0.05, upper=10.0)
    """Time to rest of the stops along the path whose torque is evaluated."""
    samples: int = setting(25, "-", lower=5, upper=500, library_only=True)
    """Times at which torques and distances are evaluated."""
    prior_error: float = setting(0.02, "Nm", lower=1e-6, upper=10.0, library_only=True)
    """Torque error with which the payload's prior counts as measured; keeps the cost defined while nothing has been
    measured, see :mod:`sysid_ros.core.planning.costs`."""
    draws: int = setting(64, "-", lower=1, upper=10000, library_only=True)
    """Random motions of which the best are starts."""
    starts: int = setting(4, "-", lower=1, upper=100, library_only=True)
    """Starts of the solver."""
    iterations: int = setting(12, "-", lower=1, upper=1000, library_only=True)
    """Iterations of the solver per start."""
    attempts: int = setting(8, "-", lower=1, upper=100, library_only=True)
    """Largest number of searches for a first plan."""
    improvements: int = setting(4, "-", lower=0, upper=100, library_only=True)
    """Largest number of steps to better plans, while time is left."""
    good_condition: float = setting(20.0, "-", lower=1.0, upper=1e12, library_only=True)
    """Condition number up to which a plan is good enough and not improved."""
    call_time: float = setting(0.3, "s", lower=0.0, upper=10.0, library_only=True)
    """Time that bounding and verifying a candidate is expected to take until it has been measured."""
    proof_time: float = setting(1.5, "s", lower=0.0, upper=60.0, library_only=True)
    """Time that proving a plan throughout is expected to take until it has been measured."""
    proves_throughout: bool = setting(False)
    """Return only plans with tracking bounds that are proven throughout, no term of the model estimated. That takes
    seconds for each: plans that take over need a longer planning_time."""
    seed: int = setting(0, "-", lower=0, upper=2**32 - 1)
    """Seed of the random motions; the same seed gives the same plan unless the time runs out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.planning_time < self.duration:
            raise ParameterOutOfRange("planning_time [s]", self.planning_time, f"below the duration {self.duration}")


@dataclass(frozen=True)
class PlanRequest:
    """What to plan.

    Attributes:
        assumptions: The arm, the boxes of its and its payload's parameters from the start of the plan on, the scene,
            and the controller.
        start: Posture to start at from rest, (n,) [rad]; not used with a predecessor.
        predecessor: Plan it takes over from, with its tracking bound; None for a start from rest.
        takeover_time: Time of the predecessor at which it takes over [s].
        information: Gram matrix of the windows collected until then, (10, 10).
        goal: Posture to get to, (n,) [rad]; None for exciting motions.
        is_last: Whether nothing will take over from it.
        time_limit: Time after which the answer must be there [s]. No call is begun that, as long as the longest of
            late, would end after it; a call that takes longer than ever before is not interrupted.

    Raises:
        ParameterOutOfRange: There is neither a start nor a predecessor with a bound, or ``information`` is not a finite
            (10, 10) Gram matrix.
        ParameterOutOfRange: A vector has the wrong length or is not finite.
    """

    assumptions: Assumptions
    start: Array | None = None
    predecessor: CertifiedPlan | None = None
    takeover_time: float = 0.0
    information: Array = field(default_factory=lambda: np.zeros((10, 10)))
    goal: Array | None = None
    is_last: bool = False
    time_limit: float = 1.3

    def __post_init__(self) -> None:
        if self.predecessor is None and self.start is None:
            raise ParameterOutOfRange("start", None, "a posture (n,) [rad], or a plan to take over from")
        if self.predecessor is not None and self.predecessor.bound is None:
            allowed = "one whose tracking bound is known here"
            raise ParameterOutOfRange("plan to take over from", self.predecessor.plan_id[:12], allowed)
        n = self.assumptions.robot.n
        for name in ("start", "goal"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, joint_vector(f"{name} [rad]", getattr(self, name), n))
        object.__setattr__(self, "information", _checked_information(self.information))

    @cached_property
    def state(self) -> State:
        """Position, velocity and acceleration at the start, each (n,)."""
        if self.predecessor is not None:
            return self.predecessor.trajectory.evaluate(self.takeover_time)
        assert self.start is not None  # noqa: S101  # checked when made
        rest = np.zeros(self.start.size)
        return self.start, rest, rest

    @cached_property
    def history(self) -> TrackingHistory | None:
        """The earlier motion and its tracking errors; None for a start from rest.

        Raises:
            ParameterOutOfRange: The predecessor cannot be left at the takeover time.
        """
        return None if self.predecessor is None else self._left(self.predecessor.bound)

    @cached_property
    def proven_history(self) -> TrackingHistory | None:
        """The same with errors that are proven throughout.

        Raises:
            ParameterOutOfRange: The predecessor cannot be left at the takeover time, or its errors are not.
        """
        if self.predecessor is None:
            return None
        if self.predecessor.proven is None:
            allowed = "one whose tracking bound is proven throughout"
            raise ParameterOutOfRange("plan to take over from", self.predecessor.plan_id[:12], allowed)
        return self._left(self.predecessor.proven)

    def _left(self, bound: TrackingBound | None) -> TrackingHistory | None:
        return None if bound is None else bound.until(self.takeover_time)


class PlanFailureCode(IntEnum):
    """Reasons for no plan; the same numbers as in the message ``PlanStatus``."""

    NO_TRACKING_BOUND = 1
    LIMIT = 2
    NO_MOTION = 3
    NO_ROOM = 4
    NO_TIME = 5
    CANCELLED = 6
    REQUEST = 7
    NOT_READY = 8
    INTERNAL = 9


@dataclass(frozen=True)
class Rejection:
    """Reason for the rejection of one candidate.

    Attributes:
        code: The reason.
        text: The reason, in a sentence.
        cause: The underlying error, if there was one.
    """

    code: PlanFailureCode
    text: str
    cause: SysidError | None = None


class PlanFailure(SysidError):
    """No motion could be certified; the arm stays at rest or comes to rest on the plan it follows.

    Args:
        rejection: Fault of the best candidate.
        statistics: Effort of the search.
        advice: A remedy, in a sentence; empty without any.
    """

    def __init__(self, rejection: Rejection, statistics: PlanStatistics, advice: str = ""):
        self.code = rejection.code
        self.rejection = rejection
        self.statistics = statistics
        self.advice = advice
        super().__init__(f"no certified plan: {rejection.text}{advice}")


def _checked_information(information: ArrayLike) -> Array:
    matrix: Array = np.array(information, dtype=float)
    if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
        raise ParameterOutOfRange("information", f"an array of shape {matrix.shape}", "a finite (10, 10) Gram matrix")
    matrix = np.asarray(0.5 * (matrix + matrix.T))
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of information", float(values[0]), "0 or more (a Gram matrix)")
    matrix.setflags(write=False)
    return matrix
