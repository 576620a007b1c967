"""What one identification found, with everything a reader needs to judge it; the input of every written file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.estimation.unknowns import describe_unknowns
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.margin_rows import MarginRow
from sysid_ros.core.planning.trajectory import Trajectory
from sysid_ros.export.window_check import WindowCheck

Array = NDArray[np.float64]

END_EFFECTOR = "end_effector"
"""Target of an estimate that describes the last body and the payload together."""


def _frozen(values: ArrayLike | None) -> Array | None:
    if values is None:
        return None
    array = np.array(values, dtype=float)
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class EstimateHistory:
    """The estimates of one run, in order of time.

    Attributes:
        time: Time of each update since the first sample, (K,) [s].
        values: Point estimates, (K, 10); NaN where there was none.
        lower: Lower bounds, (K, 10).
        upper: Upper bounds, (K, 10).
        condition_number: Condition number of the stacked windows, (K,) [-].
    """

    time: Array
    values: Array
    lower: Array
    upper: Array
    condition_number: Array

    @classmethod
    def from_estimates(cls, times: Sequence[float], estimates: Sequence[ParameterEstimate]) -> EstimateHistory:
        """Stacks estimates taken at times [s]."""

        def stack(name: str) -> Array:
            return np.array([getattr(estimate, name) for estimate in estimates], dtype=float).reshape(-1, 10)

        conditions = np.array([estimate.condition_number for estimate in estimates], dtype=float)
        return cls(np.asarray(times, dtype=float), stack("values"), stack("lower"), stack("upper"), conditions)


@dataclass(frozen=True)
class MotionRecord:
    """A trajectory that was executed, or a part of it was.

    Attributes:
        start: Time it started, since the first sample [s].
        trajectory: The trajectory.
        condition_number: Condition number of the excitation it promised [-].
        claims: What its certificate checked and what not, in one sentence.
        margins: What its certificate says is left of every limit.
        followed: How long it was followed [s]; None where that is not known.
        ending: How that ended, in words; empty where that is not known.
    """

    start: float
    trajectory: Trajectory
    condition_number: float = float("nan")
    claims: str = ""
    margins: tuple[MarginRow, ...] = ()
    followed: float | None = None
    ending: str = ""


@dataclass(frozen=True)
class IdentificationResult:
    """Outcome of one identification.

    Attributes:
        robot: The arm, with the prior of its payload.
        estimate: The final estimate.
        history: All estimates of the run.
        samples: The samples used, None where they are not kept.
        reference_q: Desired positions, (N, n) [rad], None where unknown.
        reference_v: Desired velocities, (N, n) [rad/s], None where unknown.
        commanded_tau: Commanded torques, (N, n) [Nm], None where unknown.
        predicted_tau: Torques the estimated model predicts for the samples, (N, n) [Nm], None where not computed.
            Without a usable estimate: those of the payload of ``windows``, for diagnosis.
        windows: The windows beside what the estimate explains of them, None where not computed.
        motions: Trajectories that were accepted for execution, in order of time.
        information: Gram matrix of the windows, (10, 10), None where unknown.
        timing: How long each part took [s], by name.
        truth: True parameters of what ``estimate`` describes, in the same frame, (10,); only a simulation knows them.
        settings: Settings of the run, by name; plain numbers, texts, lists and mappings.
        versions: Versions of the software, by name.
        warnings: What a reader must know, one sentence each.
        caveats: Why the bounds of this run are not guaranteed although their method is, one sentence each.
        source: Where the samples came from.
        created: When the result was made.
    """

    robot: RobotModel
    estimate: ParameterEstimate
    history: EstimateHistory
    samples: SampleBlock | None = None
    reference_q: Array | None = None
    reference_v: Array | None = None
    commanded_tau: Array | None = None
    predicted_tau: Array | None = None
    windows: WindowCheck | None = None
    motions: tuple[MotionRecord, ...] = ()
    information: Array | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    truth: Array | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    source: str = "online"
    created: datetime = field(default_factory=lambda: datetime.now(timezone.utc).astimezone())

    def __post_init__(self) -> None:
        for name in ("reference_q", "reference_v", "commanded_tau", "predicted_tau", "information", "truth"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))

    @property
    def is_usable(self) -> bool:
        """Whether the estimate may be used: some parameters agree with the data, and there is a point estimate."""
        return bool(self.estimate.is_consistent and np.all(np.isfinite(self.estimate.values)))

    @property
    def is_rigorous(self) -> bool:
        """Whether the bounds are guaranteed: by their method, with all error terms, and without caveats of this run."""
        return not self.caveats and self.estimate.is_guaranteed

    @cached_property
    def prior(self) -> Box:
        """The box the parameters were known to lie in before any data, (10,)."""
        return describe_unknowns(self.robot, EstimatorSettings(target=self.estimate.target)).prior

    @property
    def shrinkage(self) -> Array:
        """Width of the prior over the width of the bounds, (10,) [-]; infinite where the bounds have no width."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.prior.width / (self.estimate.upper - self.estimate.lower)
