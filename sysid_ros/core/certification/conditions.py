"""Compare the assumptions of a certificate with an arm: boxes, control law and scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.clearance import spheres_of_payload
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.settings import ROBUST, RobustSettings
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import rest_of

_ROUNDING = 1e-9
"""Share of its width by which a box may be smaller than another one and count as equal."""


@dataclass(frozen=True)
class Conditions:
    """Facts about an arm beside its certificates.

    Attributes:
        estimates: Boxes of the payload that estimates stated, (10,) each; none where no estimates are known.
        ground: Least height of the ground in the scenes of plans [m], minus infinity for any; None where none is
            required.
    """

    estimates: tuple[Box, ...] = ()
    ground: float | None = -np.inf


def compare_conditions(robot: RobotModel, plan: CertifiedPlan, known: Conditions) -> tuple[list[str], list[str]]:
    """Compare the assumptions of a plan with the facts about the arm.

    Returns:
        Contradictions, and properties that cannot be checked, a sentence each.
    """
    problems, notes = [], []
    arm, payload = plan.boxes
    if arm.lower.shape != robot.theta_box.lower.shape or not _covers(arm, robot.theta_box):
        problems.append(f"it is proven for {describe_arm(robot, arm)}, but '{robot.name}' may be any of its whole box")
    priors = [robot.payload_prior.box, *(prior.box for prior in robot.payload_priors.values())]
    if rest_of(payload) is not None or not any(_covers(payload, box) for box in priors):
        box = f"it is proven for {describe_payload(payload)}, less than the prior of '{robot.name}'"
        if not known.estimates:
            notes.append(f"{box}; no estimate is here to compare it with")
        elif not _is_estimated(payload, known.estimates):
            problems.append(f"{box}, and than {len(known.estimates)} estimates in the recording allow together")
    problems += _compare_law(robot, plan)
    height, scene = plan.scene.ground_height, plan.scene
    if robot.spheres and known.ground is not None and not (height is not None and height >= known.ground):
        found = "no ground" if height is None else f"the ground at {height:g} m"
        wanted = "and there has to be one" if np.isinf(known.ground) else f"it has to be at {known.ground:g} m or above"
        problems.append(f"it is proven for a scene with {found}, {wanted}; --ground sets the required ground")
    if robot.spheres and not spheres_of_payload(robot, scene):
        notes.append("it is proven for a payload without extent: its scene has no spheres of it")
    return problems, notes


def describe_conditions(robot: RobotModel, plan: CertifiedPlan) -> str:
    """Describe the boxes of arm and payload, the scene and the delay that a plan was proven for."""
    scene, delay = plan.scene, dict(plan.certificate.control_law.settings).get("delay", np.nan)
    ground = "no ground" if scene.ground_height is None else f"ground at {scene.ground_height:g} m"
    return (
        f"{describe_arm(robot, plan.boxes[0])}, {describe_payload(plan.boxes[1])}; {ground}, "
        f"{len(scene.obstacles)} obstacles, {1e3 * scene.clearance:g} mm of clearance; a delay up to {1e3 * delay:g} ms"
    )


def describe_arm(robot: RobotModel, box: Box) -> str:
    """Describe which part of an arm's own box a box is."""
    own = robot.theta_box
    if box.lower.shape != own.lower.shape:
        return f"an arm of {box.lower.size} parameters"
    if _covers(box, own):
        return "the whole box of the arm"
    width = np.where(own.width > 0.0, own.width, 1.0)
    missing = np.maximum(box.lower - own.lower, own.upper - box.upper) / width
    return f"an arm box that lacks up to {100.0 * missing.max():.3g} % of a parameter's range"


def describe_payload(box: Box) -> str:
    """Say mass and first moments of a payload's box."""
    if box.lower.shape != (10,):
        return f"a payload of {box.lower.size} parameters"
    moments = ", ".join(f"{PARAMETER_NAMES[k]} {box.lower[k]:.3g} to {box.upper[k]:.3g}" for k in (1, 2, 3))
    weighed = ", weighed" if rest_of(box) is not None else ""
    return f"a payload of {box.lower[0]:.3g} to {box.upper[0]:.3g} kg ({moments} kg m){weighed}"


def _covers(box: Box, other: Box) -> bool:
    if box.lower.shape != other.lower.shape:
        return False
    room = _ROUNDING * np.maximum(other.width, 1e-3)
    return bool(np.all(box.lower <= other.lower + room) and np.all(box.upper >= other.upper - room))


def _is_estimated(payload: Box, estimates: tuple[Box, ...]) -> bool:
    """Return whether a box is no smaller than estimates together: planners intersect each with earlier ones.

    Disjoint ones are of another payload. One of them must have the weighed torque.
    """
    rest, same = rest_of(payload), [one for one in estimates if payload.intersect(one) is not None]
    if rest is not None:
        found = [other for other in map(rest_of, estimates) if other is not None]
        if not any(
            other.joint_names == rest.joint_names
            and np.array_equal(other.posture, rest.posture)
            and _covers(rest.torque, other.torque)
            for other in found
        ):
            return False
    if not same:
        return False
    lower, upper = np.max([one.lower for one in same], axis=0), np.min([one.upper for one in same], axis=0)
    together = [Box(lower, upper)] if np.all(lower <= upper) else []
    return any(_covers(payload, box) for box in (*same, *together))


def _compare_law(robot: RobotModel, plan: CertifiedPlan) -> list[str]:
    """Describe the differences of the law from the arm's at its period; no arm has a shorter period than usual."""
    law, usual = plan.certificate.control_law, RobustSettings()
    if law.name != ROBUST:
        return [f"its control law is '{law.name}', which has no proof"]
    given = dict(law.settings)
    period = given.get("period", np.nan)
    if not usual.period <= period <= 0.02:
        return [f"its control law has a period of {1e3 * period:g} ms, drivers one of {1e3 * usual.period:g} to 20 ms"]
    own = default_gains(robot, period).law
    return [
        f"its control law has {name} = {given.get(name, np.nan):g}, that of '{robot.name}' has {value:g}"
        for name, value in own.settings
        if given.get(name) != value
    ]
