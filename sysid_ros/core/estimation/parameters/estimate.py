"""The result of an identification: parameters with bounds, their guarantee, and alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import ALL_BODIES, PAYLOAD, EstimatorSettings
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.robot import AS_CALIBRATED
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox

Array = NDArray[np.float64]

_ASSUMPTIONS = (
    "Contains the true parameters if the robot's kinematics and gravity are as modelled, its parameters and friction "
    "lie in their box, the sensors keep their error bounds, the acceleration stays within its assumed bounds, "
)
_CARRIED = "the payload lies in the box of its prior ({prior}) and has not changed during the data"
_NAMED = "the object on the body lies in its prior box, {hand}, and nothing has changed during the data"
_ALL = "{hand}, and nothing has changed during the data"
_EMPTY_HAND, _IN_HAND = "the hand is empty", "the payload in the hand lies in its prior"
_AT_TARE = "the hand was empty at the tare, friction and offsets have drifted no faster than stated since, "
_SMALLEST = (
    "Each bound is that of the smallest box around all parameters consistent with all windows, up to this update or at "
    "most two before it; compaction of old windows and the tolerance of the solver can only widen it"
)


class AlarmCode(IntEnum):
    """The subject of an alarm; the same numbers as in the message, where 0 means none."""

    SENSOR_MISMATCH = 1
    """Positions and velocities of a joint do not belong together."""
    WINDOW_INCONSISTENT = 2
    """The torques of a window are infeasible for every parameter within the bounds so far."""
    JOINTLY_INCONSISTENT = 3
    """Every window is feasible by itself, all of them together are not."""
    NO_CONSISTENT_BODY = 4
    """No physically consistent body has parameters within the bounds."""
    FIT_NOT_CONVERGED = 5
    """The bounds hold, but the point estimate was not found."""


@dataclass(frozen=True)
class Alarm:
    """Why there is no estimate, or only its bounds.

    Attributes:
        code: Its subject.
        text: Sentences for people: the joints and windows that show it, and possible causes.
        joint: The joint that shows it most; None where no single joint does.
        window: Number of the window that shows it most; None where no single window does.
        excess: By how much the largest error that the assumptions allow is exceeded there: mean torque [Nm], or
            distance [rad] for ``SENSOR_MISMATCH``; NaN where no single row shows it.
    """

    code: AlarmCode
    text: str
    joint: str | None = None
    window: int | None = None
    excess: float = np.nan

    def __str__(self) -> str:
        return self.text


NARROWER = 0.99
"""Bounds count as narrower than the prior from this share of its width on."""


class Quantity(Enum):
    """Properties of a payload that users ask for."""

    MASS = "mass"
    COM = "centre of mass"
    INERTIA = "inertia"


class EstimateStatus(IntEnum):
    """The claims of an estimate; the same numbers as in the message."""

    NO_DATA = 0
    PRIOR_ONLY = 1
    PARTIAL = 2
    IDENTIFIED = 3
    INCONSISTENT = 4


@dataclass(frozen=True)
class CombinationEstimate:
    """K identifiable combinations of parameters with bounds; arrays are read-only.

    Attributes:
        names: The parameter each is named after.
        formulas: Each written out, coefficients in SI units.
        units: Their units.
        matrix: Their values are ``matrix @ parameters``, (K, P).
        values: Point estimate, (K,); within the bounds. NaN where there is none.
        lower: Lower bounds, (K,). NaN where there is no estimate.
        upper: Upper bounds, (K,).
        prior: Their bounds before any data.
        error_budget: Share of each source of error in the radii from the data, name -> (K,).
    """

    names: tuple[str, ...]
    formulas: tuple[str, ...]
    units: tuple[str, ...]
    matrix: Array
    values: Array
    lower: Array
    upper: Array
    prior: Box
    error_budget: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("matrix", "values", "lower", "upper"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        budget = {name: _frozen(share) for name, share in self.error_budget.items()}
        object.__setattr__(self, "error_budget", budget)

    def __len__(self) -> int:
        """Return the number of combinations."""
        return len(self.names)

    @property
    def radius(self) -> Array:
        """Radii of the bounds, half their widths, (K,)."""
        return 0.5 * (self.upper - self.lower)

    @property
    def is_narrower(self) -> NDArray[np.bool_]:
        """Which combinations have narrower bounds than their prior, (K,)."""
        return self.upper - self.lower <= NARROWER * self.prior.width

    def contains(self, theta: ArrayLike) -> bool:
        """Return whether combinations of parameters (P,) lie inside the bounds; false where there is no estimate."""
        values = self.matrix @ np.asarray(theta, dtype=float)
        rounding = 1e-14 * np.abs(self.matrix) @ np.abs(np.asarray(theta, dtype=float))
        return bool(np.all((self.lower <= values + rounding) & (values - rounding <= self.upper)))


@dataclass(frozen=True)
class ParameterEstimate:
    """P parameters, each with a lower and an upper bound; arrays are read-only.

    Of one body they are ``[m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``, about the origin of ``frame``; of all
    bodies the first P of the arm's ``theta``.

    Attributes:
        values: Point estimate, (P,) [kg, kg m, kg m^2]; of one body, physically consistent. NaN where ``is_consistent``
            is false.
        lower: Lower bounds, (P,) [same units]. NaN where ``is_consistent`` is false.
        upper: Upper bounds, (P,) [same units]. NaN where ``is_consistent`` is false.
        method: How the bounds were computed (``set_membership``, ``left_inverse``, ``prior``).
        guarantee: One sentence: the guarantee of the bounds and its assumptions.
        is_guaranteed: Whether bounds, where there are any, are guaranteed: by their method, with all error terms.
        is_consistent: Whether any parameters are consistent with all data and assumptions. If not, there is no
            estimate, only the alarm.
        alarm: Why there is no estimate, or only its bounds; None if all is well.
        target: ``payload`` (carried by the last body), ``end_effector`` (last body and payload together), or another
            one in words.
        frame: Frame the parameters are expressed in: that of the body's joint; empty for all bodies, each of which has
            its own.
        number_of_windows: Momentum windows the estimate rests on.
        data_seconds: Their duration together [s].
        condition_number: Condition number of the observation matrix of the identifiable combinations, columns unscaled.
        error_budget: Share of each source of error in the radius of the data-based bounds, name -> (P,) [same units];
            before intersection with the prior and with earlier bounds. Empty for all bodies, whose combinations have
            their own.
        names: Names of the parameters.
        units: Units of the parameters.
        combinations: The identifiable combinations of the parameters with bounds; None where each parameter is.
        is_narrower: Which parameters have narrower bounds than their prior, (P,).
        narrower: Quantities with narrower bounds than the prior; empty for all bodies.
        shortfall: Why the data do not identify everything, in a sentence; empty if they do.
        payload_change: Evidence that the payload has changed on the way, in a sentence; empty without any.
        doubt: Evidence against an assumption in the first seconds of motion, with likely causes; empty without any.
        rest: Torque that arm and payload need where the arm rested last; None where it did not, or for other bodies.
        origin: Session of the driver whose samples it rests on, and number of the payload in it; estimates with
            different ones may be about different payloads. No session: samples of unknown origin.
    """

    values: Array
    lower: Array
    upper: Array
    method: str
    guarantee: str
    is_guaranteed: bool
    is_consistent: bool
    alarm: Alarm | None
    target: str
    frame: str
    number_of_windows: int
    data_seconds: float
    condition_number: float
    error_budget: Mapping[str, Array] = field(default_factory=dict)
    names: tuple[str, ...] = PARAMETER_NAMES
    units: tuple[str, ...] = PARAMETER_UNITS
    combinations: CombinationEstimate | None = None
    is_narrower: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    narrower: frozenset[Quantity] = frozenset()
    shortfall: str = ""
    payload_change: str = ""
    doubt: str = ""
    rest: RestTorque | None = None
    origin: tuple[str, int] = ("", 0)

    def __post_init__(self) -> None:
        for name in ("values", "lower", "upper"):
            object.__setattr__(self, name, _frozen(getattr(self, name), len(self.names)))
        is_narrower = np.array(self.is_narrower if len(self.is_narrower) else np.zeros(len(self.names)), dtype=bool)
        is_narrower.setflags(write=False)
        object.__setattr__(self, "is_narrower", is_narrower)
        budget = {name: _frozen(share, len(self.names)) for name, share in self.error_budget.items()}
        object.__setattr__(self, "error_budget", budget)

    @property
    def status(self) -> EstimateStatus:
        """The claims of the estimate; all bodies are identified by their combinations, one body by its quantities."""
        if not self.is_consistent:
            return EstimateStatus.INCONSISTENT
        if not self.number_of_windows:
            return EstimateStatus.NO_DATA
        found = [quantity in self.narrower for quantity in Quantity] if self.frame else []
        if self.combinations is not None:
            found += self.combinations.is_narrower.tolist()
        if all(found):
            return EstimateStatus.IDENTIFIED
        return EstimateStatus.PARTIAL if any(found) or np.any(self.is_narrower) else EstimateStatus.PRIOR_ONLY

    @property
    def alarm_text(self) -> str:
        """The alarm in words; empty if there is none."""
        return "" if self.alarm is None else self.alarm.text

    @property
    def radius(self) -> Array:
        """Radii of the bounds, half their widths, (P,)."""
        return 0.5 * (self.upper - self.lower)

    @property
    def box(self) -> Box:
        """The bounds as a box, with the torque at rest.

        Raises:
            SysidError: There is no estimate (``is_consistent`` is false).
        """
        return WeighedBox.of(Box(self.lower, self.upper), self.rest)

    def contains(self, theta: ArrayLike) -> bool:
        """Return whether parameters (P,) lie inside the bounds; false where there is no estimate."""
        values = np.asarray(theta, dtype=float)
        return bool(np.all((self.lower <= values) & (values <= self.upper)))


def is_guaranteed(settings: EstimatorSettings) -> bool:
    """Return whether the bounds are guaranteed: all error terms count."""
    return not settings.left_out_terms


def describe_guarantee(settings: EstimatorSettings, prior: str, has_tare: bool = False) -> str:
    """Describe the guarantee of the bounds with a payload prior of this name, and with the rows of a tare."""
    hand = _IN_HAND if settings.payload_in_hand else _EMPTY_HAND
    special = {PAYLOAD: _CARRIED, ALL_BODIES: _ALL}.get(settings.body, _NAMED)
    state = "as it was when the arm was calibrated" if settings.gripper == AS_CALIBRATED else settings.gripper
    gripper = f"the gripper is {state}, as stated, " if state else ""
    tare = _AT_TARE if has_tare else ""
    text = _ASSUMPTIONS + tare + gripper + special.format(hand=hand, prior=prior)
    if settings.method == "set_membership":
        text += f". {_SMALLEST}"
        if settings.use_cone:
            text += "; bodies that are not physically consistent are cut off in part"
    if settings.left_out_terms:
        left_out = ", ".join(settings.left_out_terms)
        text += f"; NOT guaranteed where these errors are present, which were left out: {left_out}"
    return text + "."


def _frozen(values: ArrayLike, size: int | None = None) -> Array:
    array = np.array(values, dtype=float)
    if size is not None:
        array = array.reshape(size)
    array.setflags(write=False)
    return array
