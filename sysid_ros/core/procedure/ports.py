"""Ports of the procedure: a planner, an arm, and a source of estimates.

Every method raises :class:`IdentificationFailed` with its code when it cannot do its work; one that waits may end with
the code ``CANCELED`` as soon as the goal is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.procedure.model_policy import PayloadModel
from sysid_ros.core.procedure.types import TareStep
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]


class ModelRefused(SysidError):
    """The controller refuses a model and keeps the one it has."""


@dataclass(frozen=True)
class MotionState:
    """State of the arm.

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
class MotionRequest:
    """Request for the next certified plan.

    Attributes:
        model: Payload model that the controller uses from its beginning on.
        information: Gram matrix of the data that will have been collected by then, (10, 10).
        start: Posture it starts from at rest, (n,) [rad]; None for a takeover.
        predecessor: Plan it takes over from, at the hand-over time of that plan; None for a start from rest.
        time_left: Time until the plan must be there, to be checked and handed over [s]; infinite before the predecessor
            is executed.
        goal: Posture to get to, (n,) [rad]; None for an exciting motion.
    """

    model: PayloadModel
    information: Array
    start: Array | None = None
    predecessor: CertifiedPlan | None = None
    time_left: float = np.inf
    goal: Array | None = None


@dataclass(frozen=True)
class ExcitationRequest:
    """Request for a periodic exciting trajectory.

    Attributes:
        index: Number of the trajectory, from 0.
        model: Payload model that the controller uses.
        information: Gram matrix of the data so far, (10, 10).
        start: Posture it starts from at rest, (n,) [rad].
        duration: Its duration [s].
        limit_share: Share of the speed and acceleration limits it may use [-].
    """

    index: int
    model: PayloadModel
    information: Array
    start: Array
    duration: float
    limit_share: float


class Planner(Protocol):
    """Plans and certifies."""

    def plan(self, request: MotionRequest) -> CertifiedPlan:
        """Plan and certify a motion, in time; fails with the code ``PLAN_FAILED``."""

    def plan_excitation(self, request: ExcitationRequest) -> tuple[Trajectory, float]:
        """Plan a trajectory; also return the condition number of ``W_e`` (SAFE-ID (30)) [-]."""

    def certify(self, trajectory: Trajectory, model: PayloadModel) -> CertifiedPlan:
        """Certify a trajectory from rest; fails with the code ``CERTIFICATE_REFUSED``."""


class Arm(Protocol):
    """Executes plans with a model of the payload."""

    @property
    def check_time(self) -> float:
        """Return the time before its takeover at which the arm needs a plan, to prove it and let it wait [s]."""

    def wait_until_ready(self) -> None:
        """Return when the arm holds still and samples arrive."""

    def posture(self) -> Array:
        """Return the held or desired posture of the arm, (n,) [rad]."""

    def set_model(self, model: PayloadModel, is_reset: bool = False) -> None:
        """Give the resting controller a model.

        Args:
            model: The model.
            is_reset: Whether it may be wider than the one in use.

        Raises:
            ModelRefused: The controller keeps its model.
        """

    def wait_until_holding(self, model: PayloadModel) -> None:
        """Return when the arm is held with a model, and may move."""

    def execute(self, plan: CertifiedPlan, model: PayloadModel | None = None) -> None:
        """Start a plan, or let it take over from its predecessor, and return at once.

        Args:
            plan: The plan.
            model: Model of the controller from the takeover on; None keeps the one in use.
        """

    def motion_state(self) -> MotionState:
        """Return the present state of the arm."""

    def has_begun(self, plan: CertifiedPlan) -> bool:
        """Return whether the arm follows this plan now, or has done so."""

    def begin_ns(self, plan: CertifiedPlan) -> int | None:
        """Return when a plan has begun or will begin, by the arm's clock [ns]; None if it was not executed."""

    def now_ns(self) -> int:
        """Return the time of the arm's clock [ns]."""

    def brake(self, reason: str) -> None:
        """Bring the arm to rest along its path.

        Raises:
            StopUnconfirmed: The rest was not observed.
        """

    def wait(self, duration: float) -> None:
        """Let time pass [s]."""


class EstimateSource(Protocol):
    """Estimates the payload from measurements of the arm."""

    def reset(self, reason: str, tare: TareStep = TareStep.KEEP) -> None:
        """Discard all data up to now, but for a tare; or begin or end one with the empty hand."""

    def latest(self) -> ParameterEstimate | None:
        """Return the latest estimate, None before the first."""

    def information(self) -> Array:
        """Return the Gram matrix (10, 10) of the data so far."""

    def stamp_ns(self) -> int:
        """Return the stamp of the last sample of the latest estimate, by the arm's clock [ns]."""

    def catch_up(self) -> None:
        """Return when the latest estimate covers all samples up to now."""


@dataclass(frozen=True)
class Ports:
    """The planner, the arm and the source of estimates of a procedure."""

    planner: Planner
    arm: Arm
    estimates: EstimateSource
