"""Check certified plans again: their parts match, the proof holds, and so do the tracking bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.certification.checks import AllowedErrors
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.ranges import find_out_of_range
from sysid_ros.core.certification.reproof import BOUND_TOLERANCE, find_overstated
from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.certification.verify import Verification, state_claims, verify
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.bound import TrackingBound

_REST = 1e-6
"""Largest start velocity [rad/s] and acceleration [rad/s^2] that count as rest."""
_JOIN = 1e-6
"""Largest difference of states where one plan takes over from another [rad, rad/s, rad/s^2]."""
_ROUNDING = 1e-6
"""Relative difference of two bounds for the same motion that counts as rounding."""


@dataclass(frozen=True)
class Recheck:
    """Result of checking a certified plan again.

    Attributes:
        problems: Failed checks, in sentences; empty if the certificate holds.
        verification: The new proof; None without one.
    """

    problems: tuple[str, ...]
    verification: Verification | None


def recheck(
    robot: RobotModel,
    plan: CertifiedPlan,
    bound: TrackingBound | None = None,
    takes_larger: bool = False,
) -> Recheck:
    """Check a certified plan again in full: that its parts match, and the proof itself.

    Args:
        robot: The robot it is for.
        plan: The plan.
        bound: Its tracking bound, from which the bounds of its stops follow (:attr:`BoundRechecker.latest`); without it
            errors in stops are assumed, as in :func:`verify`, and Coulomb friction counts in any direction.
        takes_larger: Whether larger errors of the bound replace the certificate's, and all limits must be kept with
            these; otherwise the certificate's margins must be.

    Returns:
        The problems, none if the certificate holds.
    """
    certificate, found, own = plan.certificate, None, robot_hash(robot)
    problems = list(find_out_of_range(robot, certificate))
    if certificate.robot_hash != own:
        problems.append(
            f"it is for a robot {certificate.robot_hash[:12] or 'that is not stated'}, but '{robot.name}' here is "
            f"{own[:12]} (older versions of this package computed it otherwise)"
        )
    if problems:  # no computation with numbers that no proof can give
        return Recheck(tuple(problems), None)
    settings = VerifierSettings()
    try:
        proof = replace(
            settings,
            torque_fraction=certificate.torque_fraction,
            brake_times=(certificate.brake_time,),
        )
        certificate.matches(plan.trajectory, *plan.boxes, scene_hash=plan.scene.hash(), now=certificate.issued_at)
        found = verify(plan.assumptions(robot), plan.trajectory, _errors(certificate, bound, takes_larger), proof)
        if not takes_larger:
            problems += find_overstated(certificate, found, settings)
            stated = replace(found, is_proven_throughout=certificate.is_proven_throughout)
            if bound is not None and certificate.claims != state_claims(robot, plan.scene, stated):
                problems.append(f"it claims what this proof does not: {certificate.claims!r}")
    except SysidError as error:
        problems.append(str(error))
    return Recheck(tuple(problems), found)


def check_sequence(plans: Sequence[CertifiedPlan]) -> list[tuple[str, ...]]:
    """Check that plans follow each other: times of issue ascend, and each starts at rest or on its predecessor.

    Returns:
        The problems of each plan, in the order of issue.
    """
    problems: list[tuple[str, ...]] = []
    known: dict[str, CertifiedPlan] = {}
    issued_at = -np.inf
    for plan in plans:
        here = []
        if plan.certificate.issued_at < issued_at:
            here.append("its certificate was issued before that of the plan before")
        issued_at = plan.certificate.issued_at
        q, v, a = plan.trajectory.evaluate(0.0)
        if plan.predecessor is None:
            if np.abs(v).max() > _REST or np.abs(a).max() > _REST:
                here.append("it starts in motion, but its certificate is about a start from rest")
        elif plan.predecessor not in known:
            here.append(f"it takes over from plan {plan.predecessor[:12]}, which is not here")
        else:
            left = np.concatenate(known[plan.predecessor].trajectory.evaluate(plan.takeover_time))
            if not np.abs(np.concatenate([q, v, a]) - left).max() <= _JOIN:
                here.append(
                    f"it does not start in the state of plan {plan.predecessor[:12]} at {plan.takeover_time:.3f} s"
                )
        problems.append(tuple(here))
        known[plan.plan_id] = plan
    return problems


def _errors(certificate: Certificate, bound: TrackingBound | None, takes_larger: bool) -> AllowedErrors:
    stated = certificate.tracking_bound, certificate.velocity_bound, certificate.torque_bound
    if bound is None:
        return AllowedErrors(*stated)
    if takes_larger:
        position, velocity, torque = (
            np.maximum(x, y) for x, y in zip(stated, (bound.position, bound.velocity, bound.torque), strict=True)
        )
    else:
        position, velocity, torque = stated
    return replace(AllowedErrors.of(bound, len(position)), position=position, velocity=velocity, torque=torque)


class BoundRechecker:
    """Check the tracking bounds of one robot's plans, in the order they were issued: errors pass from plan to plan.

    Args:
        robot: The robot; its parameters, friction and sensors enter the bounds.
        encloses_terms: Whether bounds are proven throughout (:func:`tracking_bound`). These are other bounds than the
            certificate's, which may state less.

    Attributes:
        latest: Bound of the plan that was checked last; None where there is none.
        encloses_terms: See above.
    """

    def __init__(self, robot: RobotModel, encloses_terms: bool = False):
        self._robot, self.encloses_terms = robot, encloses_terms
        self.latest: TrackingBound | None = None
        self._bounds: dict[str, TrackingBound] = {}

    def check(self, plan: CertifiedPlan) -> tuple[str, ...]:
        """Return the problems of the errors that a certificate allows for; none if they are proven bounds."""
        certificate, self.latest = plan.certificate, None
        if any(find_out_of_range(self._robot, certificate)):
            return ()  # recheck() reports these
        try:
            RobustSettings.of_law(certificate.control_law)
        except SysidError as error:
            return (f"its tracking bound is for the controller '{certificate.control_law}', which has none: {error}",)
        if plan.predecessor is not None and plan.predecessor not in self._bounds:
            return (f"it takes over from plan {plan.predecessor[:12]}, which is not here or has no bound",)
        try:
            history = None
            if plan.predecessor is not None:
                history = self._bounds[plan.predecessor].until(plan.takeover_time)
            assumptions = replace(plan.assumptions(self._robot), encloses_terms=self.encloses_terms)
            found = assumptions.bound(plan.trajectory, history)
        except SysidError as error:
            return (f"its tracking bound cannot be proven: {error}",)
        self.latest, self._bounds[plan.plan_id] = found, found.without_proof()
        if self.encloses_terms and not certificate.is_proven_throughout:
            return ()
        return self._misstated(plan, found)

    def _misstated(self, plan: CertifiedPlan, found: TrackingBound) -> tuple[str, ...]:
        certificate, problems = plan.certificate, []
        stated = (
            ("position error", "rad", certificate.tracking_bound, found.position),
            ("velocity error", "rad/s", certificate.velocity_bound, found.velocity),
            ("feedback torque", "Nm", certificate.torque_bound, found.torque),
        )
        for name, unit, values, proven in stated:
            # With either kind of bound certificates may state the larger one.
            is_larger_one = certificate.is_proven_throughout
            most = np.inf if is_larger_one else (1.0 + BOUND_TOLERANCE) * proven
            excess = np.maximum(proven * (1.0 - _ROUNDING) - values, values - most)
            worst = int(np.argmax(excess))
            if not excess[worst] <= 0.0:
                problems.append(
                    f"its certificate states a {name} of {self._robot.joint_names[worst]} up to {values[worst]:.6g} "
                    f"{unit}, proven is {proven[worst]:.6g} {unit}"
                )
        if plan.predecessor is None and certificate.rest_before < found.settling_time - 1e-9:
            problems.append(
                f"its certificate asks for {certificate.rest_before:.2f} s of rest before it, needed are "
                f"{found.settling_time:.2f} s"
            )
        return tuple(problems)
