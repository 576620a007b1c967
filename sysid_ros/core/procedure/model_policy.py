"""Decide which payload model the controller uses: its bounds and its nominal payload.

Planner, verifier and controller must work with one model. It starts from the payload's prior, only ever gets tighter,
and is never built from data that contradict it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed
from sysid_ros.core.regressors.rest_torque import rest_of
from sysid_ros.core.tracking_bound.nominal_payload import (
    best_payload,
    choose_payload,
    easiest_payload,
    light_payloads,
    weighed_payload,
)

Array = NDArray[np.float64]

_ELSEWHERE = 0.1
"""From how far away from a posture another nominal payload than the one that is easiest to hold there counts [rad]."""

PAYLOAD = "payload"
"""Target of the estimates that a payload model can be made of; others include parts of the arm."""


@dataclass(frozen=True, eq=False)
class PayloadModel:
    """The payload model of a controller.

    Attributes:
        box: Box that contains the true parameters, (10,).
        nominal: Nominal parameters, (10,). They need not lie in the box: a change costs more tracking bound than it
            gains while bounds shrink.
        estimate: The estimate that the box comes from, cut down to the box; None for the prior.
    """

    box: Box
    nominal: Array
    estimate: ParameterEstimate | None = None

    @classmethod
    def prior(cls, robot: RobotModel) -> PayloadModel:
        """Build the model of a payload before any measurement."""
        assumed = Assumptions.of_payload(robot)
        return cls(assumed.boxes[1], assumed.nominal)


class ModelPolicy:
    """Decides on the payload model of one goal, from the latest estimate and the model in use.

    Every decision first checks the data: where they are inconsistent, with each other or with the model in use, it
    raises :class:`IdentificationFailed` with the code ``INCONSISTENT``, so that no such model is ever sent.

    Args:
        robot: The arm.
        in_use: Model of the controller; None for the prior's.
        may_tighten: Whether estimates make the model tighter; False keeps the one in use.

    Attributes:
        robot: The arm.
        in_use: Model of the controller.
        may_tighten: Whether estimates make it tighter.
    """

    def __init__(self, robot: RobotModel, in_use: PayloadModel | None = None, may_tighten: bool = True):
        self.robot = robot
        self.may_tighten = may_tighten
        self._is_nominal_chosen = False
        self._easiest: tuple[Array, Array] | None = None  # the posture, and the nominal payload before
        self.in_use = in_use or PayloadModel.prior(robot)

    def note_given(self, model: PayloadModel) -> None:
        """Record that the controller has accepted a model."""
        self.in_use = model

    def reset(self) -> PayloadModel:
        """Return the model for a payload that may be another one than before."""
        self._is_nominal_chosen, self._easiest = False, None
        return PayloadModel.prior(self.robot)

    def for_chain(self, estimate: ParameterEstimate | None, posture: Array) -> PayloadModel:
        """Return the model for a chain of plans that starts from rest; for the first chain, also choose the nominal.

        Once the payload has been weighed, the nominal payload is the one with the best bounds at the posture (n,)
        [rad]. Later chains keep it, but for one that was the easiest to hold in another posture.
        """
        model = self.for_plan(estimate)
        if self._easiest is not None and np.abs(posture - self._easiest[0]).max() > _ELSEWHERE:
            model = replace(model, nominal=self._easiest[1])
            self._is_nominal_chosen, self._easiest = False, None
        is_weighed, self._is_nominal_chosen = not self._is_nominal_chosen and model is not self.in_use, True
        if not is_weighed:
            return model
        boxes = (self.robot.theta_box, model.box)
        return replace(model, nominal=weighed_payload(self.robot, boxes, model.nominal, posture))

    def for_plan(self, estimate: ParameterEstimate | None) -> PayloadModel:
        """Return the model for the next plan, whether it starts from rest or takes over in motion."""
        self.require_consistent(estimate)
        if estimate is None or not self.may_tighten or estimate.target != PAYLOAD:
            return self.in_use
        # Cut the estimate down to the box in use: both contain the truth
        lower = np.maximum(estimate.lower, self.in_use.box.lower)
        upper = np.minimum(estimate.upper, self.in_use.box.upper)
        inside = replace(
            estimate,
            values=np.clip(estimate.values, lower, upper),
            lower=lower,
            upper=upper,
            rest=estimate.rest or rest_of(self.in_use.box),
        )
        return PayloadModel(inside.box, self.in_use.nominal, inside)

    def easiest_to_hold(self, posture: Array) -> PayloadModel:
        """Return the model in use with the nominal payload that leaves the most torque to hold a posture (n,) [rad].

        Its motions are less exact, but they can begin where little torque is left.
        """
        model, robot = self.in_use, self.robot
        if not self.may_tighten or model.estimate is None:
            return model
        best = easiest_payload(robot, (robot.theta_box, model.box), model.nominal, posture)
        if np.array_equal(best, model.nominal):
            return model
        self._easiest = np.array(posture, dtype=float), model.nominal
        return replace(model, nominal=best)

    def final(self, estimate: ParameterEstimate, posture: Array | None) -> PayloadModel:
        """Return the model to work with from now on.

        Args:
            estimate: The result.
            posture: Posture at which the feedback should need the least torque, (n,) [rad]; None for the home posture.
        """
        model, robot = self.for_plan(estimate), self.robot
        # Bounds may hold although the fit found no point estimate: the nominal payload stays then.
        if model is self.in_use or model.estimate is None or not np.all(np.isfinite(model.estimate.values)):
            return model
        boxes = (robot.theta_box, model.box)
        proposed = choose_payload(robot, boxes, model.estimate.values)
        candidates = [model.nominal, proposed, *light_payloads(robot, boxes)]
        best = best_payload(robot, boxes, candidates, robot.home if posture is None else posture)
        return replace(model, nominal=best)

    def require_consistent(self, estimate: ParameterEstimate | None) -> None:
        """Check that some payload agrees with the data and with the model in use.

        Raises:
            IdentificationFailed: With the code ``INCONSISTENT``: there is none.
        """
        if estimate is None:
            return
        if not estimate.is_consistent:
            raise IdentificationFailed(IdentificationErrorCode.INCONSISTENT, estimate.alarm_text)
        if estimate.target != PAYLOAD:
            return
        before, box = self.in_use.estimate, self.in_use.box
        if before is not None and before.origin != estimate.origin:
            raise IdentificationFailed(
                IdentificationErrorCode.INCONSISTENT,
                "the bounds in use are of another payload or session of the driver: another client has given the "
                "controller its prior back, or announced a change of the payload",
            )
        gap = np.maximum(estimate.lower - box.upper, box.lower - estimate.upper)
        if gap.max() > 0.0:
            i = int(gap.argmax())
            raise IdentificationFailed(
                IdentificationErrorCode.INCONSISTENT,
                f"the estimate of {PARAMETER_NAMES[i]}, [{estimate.lower[i]:.6g}, {estimate.upper[i]:.6g}], does not "
                f"overlap the bounds in use, [{box.lower[i]:.6g}, {box.upper[i]:.6g}]: an assumption does not hold, or "
                "the payload was changed",
            )
