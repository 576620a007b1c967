"""A certified plan as the procedure sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.trajectories.serialization import Trajectory


@dataclass(frozen=True, eq=False)
class CertifiedPlan:
    """A motion with its certificate.

    Attributes:
        trajectory: The trajectory; it ends at rest.
        certificate: Its certificate.
        predecessor: Identity of the plan it takes over from; None starts from rest.
        takeover_time: Time of the predecessor at which it begins [s].
        handover_time: Time of this plan at which the next one may take over [s]; None where nothing does.
        information_gained: Gram matrix that the part until then adds, (10, 10).
        condition_number: Condition number of the information by then [-].
    """

    trajectory: Trajectory
    certificate: Certificate
    predecessor: str | None = None
    takeover_time: float = 0.0
    handover_time: float | None = None
    information_gained: NDArray[np.float64] = field(default_factory=lambda: np.zeros((10, 10)))
    condition_number: float | None = None

    @property
    def plan_id(self) -> str:
        """Identity of the plan."""
        return self.trajectory.hash()

    @property
    def duration(self) -> float:
        """Time until it rests [s]."""
        return self.trajectory.duration
