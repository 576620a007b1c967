"""Prove plans a second time: an executor trusts only the path of a plan, and repeats the proof.

Tracking bound and proof are repeated on the executor's own assumptions, and the certificate must state the same.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions, robot_hash
from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch
from sysid_ros.core.certification.checks import AllowedErrors
from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.certification.verify import Verification, verify
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

BOUND_TOLERANCE = 0.01
"""Relative difference of two proven bounds of one motion: the search for them may end a step earlier elsewhere."""
_REMEMBERED = 8
"""Plans whose bounds are kept for their successors."""


@dataclass(frozen=True)
class Reproof:
    """Result of a second proof, with the larger of its tracking bound and the certificate's errors."""

    bound: TrackingBound
    verification: Verification


class Reprover:
    """Prove the plans of one arm in the order in which they are executed: tracking errors pass from plan to plan.

    Attributes:
        robot: The arm.
    """

    def __init__(self, robot: RobotModel):
        self.robot, self._settings = robot, VerifierSettings()
        self._bounds: OrderedDict[str, TrackingBound] = OrderedDict()

    def warm_up(self) -> None:
        """Prove a motion once, so that results computed once per arm are ready for the first plan."""
        rest = np.zeros(self.robot.n)
        stay = BezierTrajectory(self.robot.home, rest, rest, self.robot.home, 1.0)
        assumptions = Assumptions.of_payload(self.robot)
        try:
            verify(assumptions, stay, assumptions.bound(stay), self._settings)
        except SysidError:
            pass  # the one-time results exist before anything can be refused

    def prove(self, trajectory: Trajectory, certificate: Certificate, assumptions: Assumptions) -> Reproof:
        """Prove a plan.

        Args:
            trajectory: Its path.
            certificate: Its certificate, with numbers in their ranges.
            assumptions: The executor's assumptions.

        Raises:
            CertificateMismatch: The certificate is about something else.
            SysidError: It claims more than can be proven, or leaves something out; there is no tracking bound, or a
                limit is broken.
        """
        self.require_same(trajectory, certificate, assumptions)
        bound = assumptions.bound(trajectory, self._history(certificate))
        stated = (
            ("position error", "rad", certificate.tracking_bound, bound.position),
            ("velocity error", "rad/s", certificate.velocity_bound, bound.velocity),
            ("feedback torque", "Nm", certificate.torque_bound, bound.torque),
        )
        for name, unit, values, proven in stated:
            self._require_near(name, unit, values, proven)
        if certificate.predecessor is None and certificate.rest_before < bound.settling_time - 1e-9:
            raise _not_proven(
                f"its certificate asks for {certificate.rest_before:.2f} s of rest before it, needed are "
                f"{bound.settling_time:.2f} s"
            )
        position, velocity, torque = (np.maximum(values, proven) for _, _, values, proven in stated)
        errors = replace(AllowedErrors.of(bound, self.robot.n), position=position, velocity=velocity, torque=torque)
        settings = replace(
            self._settings, torque_fraction=certificate.torque_fraction, brake_times=(certificate.brake_time,)
        )
        found = verify(assumptions, trajectory, errors, settings)
        problems = find_overstated(certificate, found, settings)
        if problems:
            raise _not_proven("; ".join(problems))
        self._bounds[certificate.plan_id] = bound.without_proof()
        while len(self._bounds) > _REMEMBERED:
            self._bounds.popitem(last=False)
        return Reproof(bound.without_proof(), found)

    def _history(self, certificate: Certificate) -> TrackingHistory | None:
        if certificate.predecessor is None:
            return None
        before = self._bounds.get(certificate.predecessor)
        if before is None:
            raise _not_proven(f"it takes over from plan {certificate.predecessor[:12]}, which was not proven here")
        return before.until(certificate.takeover_time)

    def require_same(self, trajectory: Trajectory, certificate: Certificate, assumptions: Assumptions) -> None:
        """Check that a certificate is about a path and these assumptions.

        Raises:
            CertificateMismatch: It is about something else.
        """
        certificate.matches(trajectory, *assumptions.boxes, scene_hash=assumptions.scene.hash())
        certificate.matches_control(assumptions.control_law.law, assumptions.nominal)
        own, issued_for = robot_hash(self.robot), certificate.robot_hash
        if issued_for != own:
            raise CertificateMismatch(f"it was issued for robot {issued_for[:12] or 'none'}, but this is {own[:12]}")

    def _require_near(self, name: str, unit: str, stated: Array, proven: Array) -> None:
        for word, excess in (
            ("only", stated - (1.0 + BOUND_TOLERANCE) * proven),
            ("no less than", (1.0 - BOUND_TOLERANCE) * proven - stated),
        ):
            worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
            if not excess[worst] <= 0.0:
                raise _not_proven(
                    f"its certificate states a {name} of {self.robot.joint_names[worst]} up to {stated[worst]:.6g} "
                    f"{unit}, proven is {word} {proven[worst]:.6g} {unit}"
                )


def _not_proven(reason: str) -> SysidError:
    return SysidError("the plan cannot be proven again", reason)


def find_overstated(certificate: Certificate, found: Verification, settings: VerifierSettings) -> list[str]:
    """List claims of a certificate that are better than can be proven, and limits it omits or invents."""
    problems, stated = [], {margin.limit for margin in certificate.margins}
    for kind in found.margins:
        if kind not in stated:
            problems.append(f"its certificate has no margin of the {kind.value} limit")
    for one in certificate.margins:
        kind, margin = one.limit, found.margins.get(one.limit)
        tolerance = settings.distance_tolerance if kind.is_of_the_path else settings.rate_tolerance
        if margin is None:
            problems.append(f"its certificate states a margin of the {kind.value} limit, which has no proof")
        elif not one.value <= margin.value + tolerance:
            problems.append(
                f"its certificate states a margin of the {kind.value} limit of {one.value:.4g} "
                f"{kind.margin_unit}, proven is {margin.value:.4g} {kind.margin_unit}"
            )
    squares, proven = certificate.torque_squares, found.torque_squares
    if squares.shape != proven.shape or not np.all(squares >= (1.0 - 2.0 * BOUND_TOLERANCE) * proven):
        problems.append("its certificate states smaller squares of the torques than can be proven")
    return problems
