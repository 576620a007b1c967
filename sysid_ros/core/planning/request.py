"""What a planner is asked for, and why it may have no answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.tracking_bound.bound import TrackingHistory
from sysid_ros.core.trajectories.base import State, joint_vector

Array = NDArray[np.float64]


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
        InvalidTrajectory: A vector has the wrong length or is not finite.
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
        """What was executed before and its tracking errors; None for a start from rest.

        Raises:
            ParameterOutOfRange: The predecessor cannot be left at the takeover time.
        """
        if self.predecessor is None or self.predecessor.bound is None:
            return None
        return self.predecessor.bound.until(self.takeover_time)


class PlanFailureCode(IntEnum):
    """Why there is no plan; the same numbers as in the message ``PlanStatus``."""

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
    """Why one candidate was not good enough.

    Attributes:
        code: Why.
        text: Why, in a sentence.
        cause: The error that tells it, if it was one.
    """

    code: PlanFailureCode
    text: str
    cause: SysidError | None = None


class PlanFailure(SysidError):
    """No motion could be certified; the arm stays at rest or comes to rest on the plan it follows.

    Args:
        rejection: What was wrong with the best candidate.
        statistics: What it took.
        advice: What would help, in a sentence; empty if nothing is known to.
    """

    def __init__(self, rejection: Rejection, statistics: PlanStatistics, advice: str = ""):
        self.code = rejection.code
        self.rejection = rejection
        self.statistics = statistics
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
