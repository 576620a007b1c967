"""Identification by trajectories that end at rest: plan, certify, execute, estimate, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.procedure.base import MOTION_GRACE, POLL_PERIOD, Procedure
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed, Phase, PlannedMotion

LIMIT_SHARES = (1.0, 0.75, 0.5)
"""Shares of the speed and acceleration limits that are tried until a plan is certified [-]."""


class PeriodicProcedure(Procedure):
    """Executes exciting trajectories with a stop between them."""

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
            self._run_trajectory(index)
            estimate = self._final_estimate()
            if met := self._target_is_met(estimate):
                return met
            new_widths = estimate.upper - estimate.lower
            if widths is not None and np.all(new_widths >= (1.0 - settings.shrink_threshold) * widths):
                return f"the last trajectory shrank no interval by more than {100 * settings.shrink_threshold:g} %"
            widths = new_widths
        return f"all {self._expected} trajectories are done"

    def _run_trajectory(self, index: int) -> None:
        backend = self._backend
        motion, certificate = self._plan_certified(index)
        backend.execute(motion, certificate)
        self._motions.append(motion)
        self._certificates.append(certificate)
        self._follow(index, motion)

    def _plan_certified(self, index: int) -> tuple[PlannedMotion, Certificate]:
        """Plans until a plan is certified: how large tracking errors can get is known only once there is a motion."""
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

    def _plan_once(self, index: int, limit_share: float, text: str) -> tuple[PlannedMotion, Certificate]:
        backend = self._backend
        self._report(Phase.PLANNING, text, self._fraction(index))
        motion = backend.plan(index, self._settings.trajectory_duration, backend.information(), limit_share)
        self._require_not_cancelled()
        checking = f"checking it (condition number {motion.condition_number:.1f})"
        self._report(Phase.CERTIFYING, checking, self._fraction(index))
        certificate = backend.certify(motion)
        self._require_not_cancelled()
        return motion, certificate

    def _follow(self, index: int, motion: PlannedMotion) -> None:
        deadline = motion.trajectory.duration + MOTION_GRACE
        elapsed = 0.0
        while True:
            self._backend.wait(POLL_PERIOD)
            elapsed += POLL_PERIOD
            if not self._require_moving_well().is_moving and elapsed > 5 * POLL_PERIOD:
                break
            if elapsed > deadline:
                raise IdentificationFailed(
                    IdentificationErrorCode.TIMEOUT,
                    f"the arm still moves {elapsed:.1f} s after the start of a trajectory of "
                    f"{motion.trajectory.duration:.1f} s",
                )
            self._report(Phase.MOVING, "moving", self._fraction(index + self._backend.motion_state().progress))
        self._motion_time += motion.trajectory.duration
        self._settle(self._fraction(index + 1))

    def _fraction(self, done: float) -> float:
        return min(1.0, done / self._expected)
