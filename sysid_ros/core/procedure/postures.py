"""Weigh by slow motions through a few postures and back, the same with and without a payload.

Passed in both directions, and with the empty hand before, friction and the weight of the arm are the same and cancel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.procedure.periodic import PeriodicProcedure
from sysid_ros.core.procedure.types import LEAST_POSTURES, IdentificationErrorCode, IdentificationFailed, Phase
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

_REACH = 0.9
"""Largest distance of a joint from its home position [rad]."""
_INSIDE = 0.1
"""Distance that they keep from position limits [rad]."""
_DRAWS = 1000
"""Sets of postures of which the best are taken."""
_SETS = 4
"""Sets whose postures are tried, the best first."""
_SHARES = (1.0, 0.6, 0.35)
"""Shares of the way to a posture that are tried [-]."""
_HELD = 0.75
"""Share of the continuous torque limits within which all postures are as good [-]."""
_FELT = 4
"""Parameters of a payload that its weight depends on: mass and first moments."""


class PosturesProcedure(PeriodicProcedure):
    """Pass postures one after the other, from the present one, and go back the same way.

    With a payload that is hardly known a motion may be certified only a part of the way; it helps the next one.
    """

    @property
    def _expected(self) -> int:
        return self._settings.trajectories or 2 * LEAST_POSTURES

    def _move(self) -> str:
        passed, count = [self._arm.posture()], self._expected // 2
        goals = [goal for postures in weighing_postures(self._policy.robot, count)[:_SETS] for goal in postures]
        while goals and len(passed) <= count:
            goal = goals.pop(0)
            try:
                plan = self._certify_part(goal)
            except IdentificationFailed as failure:
                if not _is_refusal(failure) or not (goals or len(passed) > 1):
                    raise
            else:
                self._carry_out(plan)
                passed.append(plan.trajectory.end)
        for goal in passed[-2::-1]:
            self._carry_out(self._certify(goal))
        return f"{len(passed) - 1} postures were passed there and back"

    def _certify_part(self, goal: Array) -> CertifiedPlan:
        """Certify a motion towards a posture, as far as can be."""
        here, (*farther, nearest) = self._arm.posture(), _SHARES
        for share in farther:
            try:
                return self._certify(here + share * (goal - here))
            except IdentificationFailed as failure:
                if not _is_refusal(failure):
                    raise
        return self._certify(here + nearest * (goal - here))

    def _certify(self, goal: Array) -> CertifiedPlan:
        """Certify a straight motion to a posture."""
        start, rest, fraction = self._arm.posture(), np.zeros(goal.size), self._fraction(len(self._plans))
        self._require_not_cancelled()
        self._report(Phase.CERTIFYING, "checking a slow motion to a posture", fraction)
        self._give_model(self._policy.for_chain(self._estimates.latest(), start))
        self._arm.wait_until_holding(self._policy.in_use)
        motion = BezierTrajectory(start, rest, rest, goal, self._settings.max_motion_time / self._expected)
        return self._planner.certify(motion, self._policy.in_use)


def _is_refusal(failure: IdentificationFailed) -> bool:
    return failure.code is IdentificationErrorCode.CERTIFICATE_REFUSED


def weighing_postures(robot: RobotModel, count: int) -> list[Array]:
    """Return sets of postures that show mass and first moments of a payload well, (count, n) [rad] each, best first.

    Best is the largest determinant of the information about them at rest, on straight ways from the home posture to one
    after the other, where the heaviest payload can be held. Sets depend on the arm alone: with the empty hand and with
    a payload they are the same.

    Args:
        robot: The arm.
        count: Postures in a set.
    """
    home, limits, sensors, n = np.array(robot.home), robot.limits, robot.sensors, robot.n
    draws = np.random.default_rng(0).uniform(-_REACH, _REACH, (_DRAWS, count, n))
    postures = np.clip(home + draws, limits.q_lower + _INSIDE, limits.q_upper - _INSIDE)
    corners = np.concatenate([np.broadcast_to(home, (_DRAWS, 1, n)), postures], axis=1)
    passed = np.concatenate([corners, 0.5 * (corners[:, 1:] + corners[:, :-1])], axis=1).reshape(-1, n)
    none = np.zeros_like(passed)
    values = TorqueRegressor(robot, EffortMeaning.LINK_SIDE).evaluate(passed, none, none)
    torque = values[..., : INERTIAL * n] @ robot.theta_nominal[: INERTIAL * n]
    felt = values[..., INERTIAL * (n - 1) : INERTIAL * (n - 1) + _FELT]
    load = robot.payload_prior.box
    largest = np.abs(torque + felt @ load.center[:_FELT]) + np.abs(felt) @ load.radius[:_FELT]
    share = (largest / limits.tau_continuous).reshape(_DRAWS, -1).max(axis=1)
    error = np.minimum(sensors.effort_mean_error, sensors.effort_absolute_error)
    error = error + sensors.effort_relative_error * np.abs(torque)
    rows = (felt / np.maximum(error, 1e-6)[..., None]).reshape(_DRAWS, -1, _FELT)
    none = 1e-6 * np.eye(_FELT)  # joints with vertical axes alone feel no weight
    information = np.linalg.slogdet(np.swapaxes(rows, 1, 2) @ rows + none)[1]
    order = np.lexsort([-information, np.maximum(share, _HELD)])
    return [postures[k] for k in order]
