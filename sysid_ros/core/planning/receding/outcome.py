"""What the planner returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.bezier import BezierTrajectory
from sysid_ros.core.planning.motion_checks import TrackingErrors

if TYPE_CHECKING:
    from sysid_ros.core.planning.verifier.verify import Verification

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PlanStatistics:
    """What it took to find a plan, or not to find one.

    Attributes:
        starts: Starts of the solver, of all searches.
        iterations: Iterations of the solver, of all starts.
        bounds: Calls of ``bound``.
        verifications: Calls of ``verify``.
        seconds: Time spent by part: "search", "bound", "verify", "total", and until the "first" certified plan (0
            without) [s].
        rejections: Why candidates were rejected, in order.
        was_cut: Whether the time ran out before the search was over; the plan then depends on how busy the machine is.
    """

    starts: int
    iterations: int
    bounds: int
    verifications: int
    seconds: Mapping[str, float]
    rejections: tuple[str, ...]
    was_cut: bool


@dataclass(frozen=True)
class PlanOutcome:
    """The best certified plan, or why there is none.

    Attributes:
        trajectory: The plan; None if there is none.
        errors: What ``bound`` gave for it.
        verification: What ``verify`` gave for it.
        cost: Its cost.
        information: Information collected before and by the part of the plan that will be executed, (10, 10).
        condition_number: Condition number of the rows with this information (that of Y in SAFE-ID) [-].
        reason: Why there is no plan, in one sentence; empty if there is one.
        statistics: What it took.
    """

    trajectory: BezierTrajectory | None
    errors: TrackingErrors | None
    verification: Verification | None
    cost: float
    information: Array
    condition_number: float
    reason: str
    statistics: PlanStatistics = field(repr=False)

    def __post_init__(self) -> None:
        information = np.array(self.information, dtype=float)
        information.setflags(write=False)
        object.__setattr__(self, "information", information)

    @property
    def is_found(self) -> bool:
        """Whether there is a plan."""
        return self.trajectory is not None
