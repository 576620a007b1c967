"""The result of an identification: ten parameters with bounds, and what the bounds are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.box import Box
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ParameterEstimate:
    """Ten inertial parameters, each with a lower and an upper bound; arrays are read-only.

    The order is ``[m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``, about the origin of ``frame``.

    Attributes:
        values: Point estimate, (10,) [kg, kg m, kg m^2]; physically consistent. NaN where ``is_consistent`` is false.
        lower: Lower bounds, (10,) [same units]. NaN where ``is_consistent`` is false.
        upper: Upper bounds, (10,) [same units]. NaN where ``is_consistent`` is false.
        method: How the bounds were computed (``left_inverse``, ``sensitivity``, ...).
        guarantee: One sentence: what the bounds guarantee and under which assumptions.
        is_consistent: Whether any parameters agree with all the data and assumptions. If not, there is no estimate,
            only the alarm.
        alarm: What is wrong and which joints and windows show it; empty if nothing is.
        target: ``payload`` (what the last body carries) or ``end_effector`` (last body and payload together).
        frame: Frame the parameters are expressed in: the frame of the last joint.
        number_of_windows: Momentum windows the estimate rests on.
        data_seconds: Their duration together [s].
        condition_number: Condition number of the observation matrix, columns as they are.
        error_budget: Share of each source of error in the half width of the data-based bounds, name -> (10,)
            [same units]; before intersection with the prior and with earlier bounds.
        names: Names of the parameters.
        units: Units of the parameters.
    """

    values: Array
    lower: Array
    upper: Array
    method: str
    guarantee: str
    is_consistent: bool
    alarm: str
    target: str
    frame: str
    number_of_windows: int
    data_seconds: float
    condition_number: float
    error_budget: Mapping[str, Array] = field(default_factory=dict)
    names: tuple[str, ...] = PARAMETER_NAMES
    units: tuple[str, ...] = PARAMETER_UNITS

    def __post_init__(self) -> None:
        for name in ("values", "lower", "upper"):
            object.__setattr__(self, name, _ten(getattr(self, name)))
        budget = {name: _ten(share) for name, share in self.error_budget.items()}
        object.__setattr__(self, "error_budget", budget)

    @property
    def is_guaranteed(self) -> bool:
        """Whether bounds, where there are any, are guaranteed: by their method, with all error terms."""
        return self.method != "sensitivity" and "not guaranteed" not in self.guarantee.lower()

    @property
    def half_width(self) -> Array:
        """Half widths of the bounds, (10,)."""
        return 0.5 * (self.upper - self.lower)

    @property
    def box(self) -> Box:
        """The bounds as a box.

        Raises:
            InvalidBox: There is no estimate (``is_consistent`` is false).
        """
        return Box(self.lower, self.upper)

    def contains(self, theta: ArrayLike) -> bool:
        """Whether parameters (10,) lie inside the bounds; false where there is no estimate."""
        values = np.asarray(theta, dtype=float)
        return bool(np.all((self.lower <= values) & (values <= self.upper)))


def _ten(values: ArrayLike) -> Array:
    array = np.array(values, dtype=float).reshape(10)
    array.setflags(write=False)
    return array
