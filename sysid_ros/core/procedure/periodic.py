"""Identify by trajectories that end at rest: plan, certify, execute, estimate, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.procedure.base import Procedure
from sysid_ros.core.procedure.ports import ExcitationRequest
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed, Phase

LIMIT_SHARES = (1.0, 0.75, 0.5)
"""Shares of the speed and acceleration limits that are tried until a plan is certified [-]."""


class PeriodicProcedure(Procedure):
    """Execute exciting trajectories with a stop between them."""

    @property
    def _expected(self) -> int:
        settings = self._settings
        return settings.trajectories or int((settings.max_motion_time + 1e-9) // settings.trajectory_duration)

    def _move(self) -> str:
        settings = self._settings
        widths: NDArray[np.float64] | None = None
        for index in range(self._expected):
            if self._motion_time + settings.trajectory_duration > settings.max_motion_time + 1e-9:
                return f"the next trajectory would exceed {settings.max_motion_time:g} s of motion"
            self._carry_out(self._plan_certified(index))
            estimate = self._final_estimate()
            if met := self._target_is_met(estimate):
                return met
            new_widths = estimate.upper - estimate.lower
            least = settings.shrink_threshold
            if least > 0.0 and widths is not None and np.all(new_widths >= (1.0 - least) * widths):
                return f"the last trajectory shrank no interval by more than {100 * least:g} %"
            widths = new_widths
        return f"all {self._expected} trajectories are done"

    def _plan_certified(self, index: int) -> CertifiedPlan:
        """Plan until a plan is certified: the size of tracking errors is known only after there is a motion."""
        *faster, slowest = LIMIT_SHARES
        text = "planning an exciting trajectory"
        for limit_share in faster:
            try:
                return self._plan_once(index, limit_share, text)
            except IdentificationFailed as refusal:
                if refusal.code != IdentificationErrorCode.CERTIFICATE_REFUSED:
                    raise
                text = f"planning a slower one ({refusal})"
        return self._plan_once(index, slowest, text)

    def _plan_once(self, index: int, limit_share: float, text: str) -> CertifiedPlan:
        self._report(Phase.PLANNING, text, self._fraction(index))
        self._give_model(self._policy.for_plan(self._estimates.latest()))
        model = self._policy.in_use
        self._arm.wait_until_holding(model)
        request = ExcitationRequest(
            index,
            model,
            self._estimates.information(),
            self._arm.posture(),
            self._settings.trajectory_duration,
            limit_share,
        )
        trajectory, condition_number = self._planner.plan_excitation(request)
        self._require_not_cancelled()
        # A creep sweep is not planned for one.
        number = "" if np.isnan(condition_number) else f" (condition number {condition_number:.1f})"
        self._report(Phase.CERTIFYING, f"checking it{number}", self._fraction(index))
        plan = self._planner.certify(trajectory, model)
        self._require_not_cancelled()
        return replace(plan, condition_number=condition_number)

    def _carry_out(self, plan: CertifiedPlan) -> None:
        """Execute a plan, and return at rest after it, with an estimate that covers it."""
        self._arm.execute(plan)
        self._plans.append(plan)
        self._follow(plan, share=1.0 / self._expected)
        self._motion_time += plan.duration
        self._settle(self._fraction(len(self._plans)))

    def _fraction(self, done: float) -> float:
        return min(1.0, done / self._expected)
