"""Move an arm whose hand holds a known load, for data about the arm itself.

The known load narrows the model of planner and controller, so that motions are certified that an unknown payload would
not allow. The estimate of the load meanwhile shows whether the stated one is really there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.calibration import KnownLoad, empty_hand
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure.model_policy import PAYLOAD, ModelPolicy, PayloadModel
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload

_LEAST_MASS = 0.02
"""Assumed load of an empty hand for planner and controller [kg]: dust and cables, and bounds with an interior."""


class StatedLoadPolicy(ModelPolicy):
    """Decides on the payload model from the data alone, and ends where they contradict the stated load.

    Raises:
        ParameterOutOfRange: The payload prior of the arm excludes the load.
    """

    def __init__(self, robot: RobotModel, load: KnownLoad):
        super().__init__(robot)
        self._load = load
        self._stated = stated_box(robot, load)

    def require_consistent(self, estimate: ParameterEstimate | None) -> None:
        """Check that the data agree with the model in use, and with the stated load.

        Raises:
            IdentificationFailed: With the code ``INCONSISTENT``.
        """
        super().require_consistent(estimate)
        if estimate is None or estimate.target != PAYLOAD:
            return
        gap = np.maximum(estimate.lower - self._stated.upper, self._stated.lower - estimate.upper)
        if gap.max() > 0.0:
            i = int(gap.argmax())
            raise IdentificationFailed(
                IdentificationErrorCode.INCONSISTENT,
                f"the hand does not hold the stated load ({self._load.name}): {PARAMETER_NAMES[i]} of its load is "
                f"within [{estimate.lower[i]:.4g}, {estimate.upper[i]:.4g}] {PARAMETER_UNITS[i]}, stated "
                f"was [{self._stated.lower[i]:.4g}, {self._stated.upper[i]:.4g}]; or the box of the arm is wrong",
            )


class EmptyHandPolicy(StatedLoadPolicy):
    """Decides on the payload model of a tare: the hand is stated to be empty, but no proof depends on it.

    Raises:
        ParameterOutOfRange: The payload prior of the arm excludes the empty hand.
    """

    def __init__(self, robot: RobotModel, may_tighten: bool = True):
        super().__init__(robot, empty_hand())
        self.may_tighten = may_tighten


class KnownLoadPolicy(StatedLoadPolicy):
    """Decides on the payload model with a known load: its box, cut down to the data."""

    def for_plan(self, estimate: ParameterEstimate | None) -> PayloadModel:
        """Return the model for the next plan: the stated load, cut down to its estimate.

        Raises:
            IdentificationFailed: With the code ``INCONSISTENT``: the hand does not hold the stated load.
        """
        self.require_consistent(estimate)
        if estimate is None or estimate.target != PAYLOAD:
            return self.in_use
        lower = np.maximum(estimate.lower, self._stated.lower)
        upper = np.minimum(estimate.upper, self._stated.upper)
        values = np.clip(estimate.values, lower, upper)
        model = super().for_plan(replace(estimate, values=values, lower=lower, upper=upper))
        if self.in_use.estimate is not None:
            return model
        # The nominal payload of the prior is much heavier than an empty hand.
        boxes = (self.robot.theta_box, model.box)
        return replace(model, nominal=choose_payload(self.robot, boxes, self._load.prior.nominal))


def stated_box(robot: RobotModel, load: KnownLoad) -> Box:
    """Return the box of a known load for planner and controller, inside the payload prior, (10,).

    Raises:
        ParameterOutOfRange: The payload prior of the arm excludes the load.
    """
    box, prior = load.prior.box, robot.payload_prior
    if prior.shape is not None and box.upper[0] < _LEAST_MASS:
        least = object_box([0.0, _LEAST_MASS], prior.shape.com, prior.shape.gyration)
        box = Box(np.minimum(box.lower, least.lower), np.maximum(box.upper, least.upper))
    inside = box.intersect(prior.box)
    low, high = prior.box.lower[0], prior.box.upper[0]
    if inside is None or not low <= load.prior.box.lower[0] <= load.prior.box.upper[0] <= high:
        allowed = f"inside the payload prior '{prior.name}' of the arm, which has {low:g} to {high:g} kg"
        raise ParameterOutOfRange("load", load.name, allowed)
    return inside
