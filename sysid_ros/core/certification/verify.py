"""Proves that a plan keeps every limit at all times, for all parameters in the boxes and all errors in the bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions, box_hash, robot_hash
from sysid_ros.core.certification.certificate import Certificate, Margin
from sysid_ros.core.certification.chain import Motion, enclose_path
from sysid_ros.core.certification.checks import ROUNDING, AllowedErrors, Check, Division, MotionChecks
from sysid_ros.core.certification.continuous import Load, average_squares, find_heat
from sysid_ros.core.certification.held_feedback import HeldFeedback
from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    LimitKind,
    PlanRejected,
    TrackingErrors,
    VerifierSettings,
    place_of,
    stop_torque_growth,
    stop_torque_growths,
)
from sysid_ros.core.certification.torque import TorqueBounds
from sysid_ros.core.collision.clearance import describe_unchecked_links, spheres_of_payload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.stops import StopBound
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

ACCEPTED_EXCESS = 0.009
"""Factor of errors that are proven throughout over errors with estimated terms: a little less than
drivers, which have time for these alone, let a certificate differ from their own proof."""
_HOPEFUL = 0.8
"""Share of the feedback torque of the path that has to be left in stops before their errors are bounded."""


@dataclass(frozen=True)
class Verification:
    """Proof of a plan.

    Attributes:
        margins: Smallest distance to each limit; none is negative.
        pieces: Number of pieces of time.
        brake_time: Time to rest of the proven stops along the path [s]; 0 without any.
        settings: Settings of the proof.
        torque_squares: Bounds of the mean squares of the torques in equal parts of the plan, and in any minute while
            it is held afterwards, (K + 1, n) [Nm^2].
        has_stop_bounds: Whether the errors in stops are bounded, not assumed.
        is_proven_throughout: Whether errors on the path and in stops are proven with no term of the model estimated.
    """

    margins: Mapping[LimitKind, Margin]
    pieces: int
    brake_time: float
    settings: VerifierSettings
    torque_squares: Array
    has_stop_bounds: bool = False
    is_proven_throughout: bool = False


@dataclass(frozen=True)
class Proof:
    """A proof in which no term of the model is estimated.

    Attributes:
        bound: Tracking bound.
        errors: The larger of its errors and the errors with estimated terms, which drivers can compute in time.
        verification: The proof with these.
    """

    bound: TrackingBound
    errors: AllowedErrors
    verification: Verification


@dataclass(frozen=True)
class Beginning:
    """Start of a plan.

    Attributes:
        predecessor: ``plan_id`` of the plan it takes over from; None for a start from rest.
        takeover_time: Time of that plan at which it takes over [s].
        rest_before: How long the arm must have been held at rest before a start from rest [s].
        issued_at: Time of the loop's clock from which the certificate is valid [s].
    """

    predecessor: str | None = None
    takeover_time: float = 0.0
    rest_before: float = 0.0
    issued_at: float = 0.0


def verify(
    assumptions: Assumptions,
    trajectory: Trajectory,
    errors: TrackingErrors,
    settings: VerifierSettings | None = None,
) -> Verification:
    """Prove that a plan is safe; docs/theory/certificates.md says what that means and why it holds.

    Args:
        assumptions: The arm, the boxes of its and its payload's parameters, and the scene.
        trajectory: The plan, a Bezier or Fourier trajectory.
        errors: Largest errors of the controller: position (n,) [rad], velocity (n,) [rad/s], and torque (n,) [Nm], the
            commanded torque less the torque that the true parameters need for the plan. In stops, errors of a
            :class:`TrackingBound` are proven; others are assumed to grow as in :mod:`stop_model`.
        settings: Limits that may be used, and how finely time is divided.

    Returns:
        The margins.

    Raises:
        PlanRejected: A limit is broken, or could not be proven to hold; the message says which, where, when and by how
            much.
        ParameterOutOfRange: The plan has another number of joints, or is of a kind that cannot be verified.
        BoundNotAvailable: There is no bound of the errors in stops.
        ParameterOutOfRange: Errors, boxes or scene do not fit the robot.
    """
    settings, robot = settings or VerifierSettings(), assumptions.robot
    if trajectory.n != robot.n:
        raise ParameterOutOfRange("the number of joints", trajectory.n, f"{robot.n}")
    _require_boxes(robot, assumptions.boxes)
    require_scene(robot, assumptions.scene)
    return _prove(assumptions, AllowedErrors.of(errors, robot.n), trajectory, settings)


def prove_throughout(
    assumptions: Assumptions,
    trajectory: Trajectory,
    bound: TrackingBound,
    history: TrackingHistory | None = None,
    settings: VerifierSettings | None = None,
) -> Proof:
    """Prove the tracking errors of a plan throughout, and the plan safe with the larger of these and a bound's.

    Args as in :func:`verify`, besides the tracking bound with estimated terms, and the history: the earlier motion,
    proven throughout, too; None for a start from rest.

    Raises:
        PlanRejected: As in :func:`verify`.
        BoundNotAvailable: There is no such bound, on the path or in stops, or drivers would not accept it.
        ParameterOutOfRange: As in :func:`verify`, or the history is not proven throughout.
    """
    proven = replace(assumptions, encloses_terms=True).bound(trajectory, history)
    for name in ("position", "velocity", "torque"):
        ratio = getattr(proven, name) / getattr(bound, name)
        worst = int(ratio.argmax())
        if not ratio[worst] <= 1.0 + ACCEPTED_EXCESS:
            raise BoundNotAvailable(
                f"the bound of the {name} error of {assumptions.robot.joint_names[worst]} that is proven throughout is "
                f"{ratio[worst]:.2f} times the one with estimated terms, and at most {1.0 + ACCEPTED_EXCESS:g} times "
                "are accepted"
            )
    errors = AllowedErrors.larger_of(bound, proven)
    return Proof(proven, errors, verify(assumptions, trajectory, errors, settings))


def with_room(bound: TrackingBound, room: float) -> TrackingErrors:
    """Return the errors of a bound, larger by a share."""
    return AllowedErrors.of(bound, bound.position.size).enlarged(room) if room else bound


def certify(
    assumptions: Assumptions,
    trajectory: Trajectory,
    errors: TrackingErrors,
    settings: VerifierSettings | None = None,
    beginning: Beginning | None = None,
) -> Certificate:
    """Prove that a plan is safe and return its certificate.

    Arguments and errors are those of :func:`verify`; without a beginning it starts from rest, at any time.
    """
    found = verify(assumptions, trajectory, errors, settings)
    return make_certificate(assumptions, trajectory, errors, found, beginning)


def make_certificate(
    assumptions: Assumptions,
    trajectory: Trajectory,
    errors: TrackingErrors,
    found: Verification,
    beginning: Beginning | None = None,
) -> Certificate:
    """Make the certificate of a proof by :func:`verify` with the same arguments; see :func:`certify`."""
    settings, beginning, robot = found.settings, beginning or Beginning(), assumptions.robot
    allowed = AllowedErrors.of(errors, robot.n)
    return Certificate(
        path_hash=trajectory.hash(),
        box_hash=box_hash(*assumptions.boxes),
        scene_hash=assumptions.scene.hash(),
        robot_hash=robot_hash(robot),
        control_law=assumptions.control_law.law,
        nominal_payload=assumptions.nominal,
        predecessor=beginning.predecessor,
        takeover_time=beginning.takeover_time,
        rest_before=beginning.rest_before,
        tracking_bound=allowed.position,
        velocity_bound=allowed.velocity,
        torque_bound=allowed.torque,
        torque_squares=found.torque_squares,
        torque_fraction=settings.torque_fraction,
        brake_time=found.brake_time,
        claims=state_claims(robot, assumptions.scene, found),
        margins=tuple(found.margins.values()),
        issued_at=beginning.issued_at,
        expires_at=beginning.issued_at + settings.validity,
        is_proven_throughout=found.is_proven_throughout,
    )


def _prove(
    assumptions: Assumptions, errors: AllowedErrors, trajectory: Trajectory, settings: VerifierSettings
) -> Verification:
    tree, checks = JointTree.of(assumptions.robot, in_base=True), MotionChecks(assumptions, errors, settings)
    count = max(2, int(np.ceil(trajectory.duration / settings.piece)))
    half = np.full(count, 0.5 * trajectory.duration / count)
    middle = (2.0 * np.arange(count) + 1.0) * half
    division = Division(0.5 * settings.shortest_piece)
    # Cheapest first; data of the first pieces that later checks need are computed once.
    tightest = dict(division.run(lambda m, h: checks.limits(enclose_path(trajectory, m, h)), middle, half))
    first = Motion(tree, enclose_path(trajectory, middle, half))
    first_torques = checks.torques(first)

    def motion(m: Array, h: Array) -> Motion:
        return first if m is middle else Motion(tree, enclose_path(trajectory, m, h))

    def torques(m: Array, h: Array) -> TorqueBounds:
        return first_torques if m is middle else checks.torques(motion(m, h))

    tightest |= division.run(lambda m, h: checks.motion_torque(torques(m, h), errors.torque_over(m, h)), middle, half)
    squares = _torque_squares(tree, checks, errors, trajectory, (middle, half, first_torques), assumptions)
    hottest = _require_continuous(assumptions.robot, squares, trajectory)
    tightest |= division.run(lambda m, h: checks.distances(motion(m, h)), middle, half)
    brake_time, has_stop_bounds = 0.0, bool(settings.brake_times) and errors.stops is not None

    def assumed(time: float) -> Callable[[Array, Array], list[Check]]:
        return lambda m, h: checks.assumed_stop_torque(torques(m, h), time, stop_torque_growths(trajectory, time, m, h))

    def bounded(time: float, stops: StopBound) -> Callable[[Array, Array], list[Check]]:
        return lambda m, h: checks.stop_torque(torques(m, h), time, stops.torque_over(m, h).T)

    def hopeful(time: float, shorter: StopBound | None) -> list[Check]:
        """Check with a lower bound of the feedback torque: with it, errors need not be bounded."""
        least = _HOPEFUL * errors.torque_over(middle, half)
        if shorter is not None:
            # In longer stops it grows less. That is only measured, and so decides only which stops are not tried.
            share = (1.0 + stop_torque_growth(time)) / (1.0 + stop_torque_growth(shorter.brake_time))
            least = np.maximum(least, share * shorter.torque_over(middle, half).T)
        return checks.stop_torque(first_torques, time, least)

    stops: StopBound | None = None
    refusals: list[tuple[bool, PlanRejected | BoundNotAvailable]] = []
    for brake_time in settings.brake_times:
        is_bounded = errors.stops is None
        try:
            if errors.stops is None:
                tightest |= division.run(assumed(brake_time), middle, half)
                break
            division.require_middles(hopeful(brake_time, stops), middle)
            is_bounded, stops = True, errors.stops(brake_time)
            tightest |= division.run(bounded(brake_time, stops), middle, half)
            checks = checks.with_stops(stops)
            break
        except (PlanRejected, BoundNotAvailable) as reason:
            refusals.append((is_bounded, reason))
            if brake_time == settings.brake_times[-1]:
                # The stops with the smallest known shortfall.
                known = [one for is_known, one in refusals if is_known] or [one for _, one in refusals]
                raise min(reversed(known), key=_lack) from None
    if has_stop_bounds:  # with the errors in stops these need more room than on the path
        tightest |= division.run(lambda m, h: checks.limits(enclose_path(trajectory, m, h)), middle, half)
        tightest |= division.run(lambda m, h: checks.distances(motion(m, h)), middle, half)
    margins = {
        kind: Margin(kind, entry.margin, place_of(kind, entry.where), entry.when)
        for kind, entry in tightest.items()
        if np.isfinite(entry.margin)
    }
    if hottest is not None:
        margins[hottest.limit] = hottest
    is_proven = errors.is_proven and (has_stop_bounds or not settings.brake_times)
    return Verification(
        MappingProxyType(margins), division.pieces, brake_time, settings, squares, has_stop_bounds, is_proven
    )


_FINE = 0.075
"""Largest half length of pieces over which squares of torques are bounded [s]."""


def _torque_squares(
    tree: JointTree,
    checks: MotionChecks,
    errors: AllowedErrors,
    trajectory: Trajectory,
    first: tuple[Array, Array, TorqueBounds],
    assumptions: Assumptions,
) -> Array:
    """Bound the mean squares of the torques in parts of a plan, and at last while it is held, (K + 1, n) [Nm^2].

    The bound of the feedback at the end of a plan is the one that holds afterwards, too.
    """
    middle, half, torques = first
    limits, feedback = assumptions.robot.limits, HeldFeedback.bound(assumptions, errors)
    if half[0] > _FINE:
        count = int(np.ceil(trajectory.duration / (2.0 * _FINE)))
        half = np.full(count, 0.5 * trajectory.duration / count)
        middle = (2.0 * np.arange(count) + 1.0) * half
        torques = checks.torques(Motion(tree, enclose_path(trajectory, middle, half)))
    size = checks.largest_torque(torques, errors.torque_over(middle, half))
    short = np.array([1e-6 * trajectory.duration])  # half the piece at the end that counts as rest
    end = trajectory.duration - short
    at_rest = checks.torques(Motion(tree, enclose_path(trajectory, end, short)))
    rest = checks.largest_torque(at_rest, np.zeros((len(size), 1)))[:, 0]
    varying = errors.torque_over(end, short)[:, 0]
    if errors.friction_speed == 0.0:  # then friction is in the torque at rest
        varying = varying + assumptions.robot.friction(assumptions.boxes[0].upper)[:, 0]
    held, more = replace(feedback, largest=varying).squares(rest)
    more = np.where(limits.tau_continuous < limits.tau_max, more, 0.0)
    moved = average_squares(middle, half, size)
    moved[-1] += more * len(moved) / trajectory.duration  # for minutes that end in the hold
    squares = np.concatenate([moved, held[None]])
    squares.setflags(write=False)
    return squares


def _require_continuous(robot: RobotModel, squares: Array, trajectory: Trajectory) -> Margin | None:
    """Return the margin of the continuous torque limits, after a minute without torque; None without such limits."""
    plan = Load.of_plan(squares, trajectory.duration)
    heat = find_heat(robot.limits, Load.none(robot.n), plan, squares[-1])
    if heat is None:
        return None
    name, kind = robot.joint_names[heat.joint], LimitKind.CONTINUOUS_TORQUE
    if heat.share > 1.0 - ROUNDING:
        advice = f"this posture may be held for {heat.hold:.0f} s" if heat.hold else ""
        raise PlanRejected(kind, (name,), heat.time, heat.value, float(robot.limits.tau_continuous[heat.joint]), advice)
    return Margin(kind, 1.0 - heat.share - ROUNDING, place_of(kind, (name,)), min(heat.time, trajectory.duration))


def _lack(refusal: PlanRejected | BoundNotAvailable) -> float:
    """Return by how much a limit is broken, in its unit; infinite without a bound."""
    return refusal.excess if isinstance(refusal, PlanRejected) else np.inf


def _require_boxes(robot: RobotModel, boxes: tuple[Box, Box]) -> None:
    for name, box, length in (("arm", boxes[0], 14 * robot.n), ("payload", boxes[1], 10)):
        if box.lower.shape != (length,):
            raise ParameterOutOfRange(f"length of the {name}'s parameter box", box.lower.size, str(length))
        if not (np.all(np.isfinite(box.lower)) and np.all(np.isfinite(box.upper))):
            raise ParameterOutOfRange(f"the {name}'s parameter box", "unbounded", "finite bounds")


def require_scene(robot: RobotModel, scene: Scene) -> None:
    """Reject payload spheres on another body than the last, and objects at the place of the base.

    Raises:
        ParameterOutOfRange: With the object and its place.
    """
    for sphere in spheres_of_payload(robot, scene):
        if sphere.body != robot.n:
            raise ParameterOutOfRange("body of a payload sphere", sphere.body, f"{robot.n}, the last")
    placement = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
    for sphere in robot.spheres:
        if sphere.body != 0:
            continue
        center = placement.rotation.T @ (sphere.center - placement.translation)
        # Spheres may reach below the mounting plane, where a table may be; their centres do not.
        if scene.ground_height is not None and center[2] <= scene.ground_height:
            allowed = f"below {center[2]:.3f} m, where the base '{sphere.link}' stands"
            raise ParameterOutOfRange("ground_height [m]", scene.ground_height, allowed)
        for obstacle in scene.obstacles:
            if obstacle.distance(center) <= 0.0:
                raise ParameterOutOfRange(
                    f"center [m] of obstacle '{obstacle.name}'",
                    obstacle.center.tolist(),
                    f"outside of the base, but it contains the point {np.round(center, 3).tolist()} of '{sphere.link}'",
                )


def state_claims(robot: RobotModel, scene: Scene, found: Verification) -> str:
    """Describe in one sentence the proven and the unproven properties."""
    has_payload = bool(spheres_of_payload(robot, scene))
    proven = ["position, velocity, acceleration and torque limits"]
    if LimitKind.CONTINUOUS_TORQUE in found.margins:
        proven.append("continuous torque limits over the plan and any hold after it, what was before left out")
    missing = []
    if found.is_proven_throughout:
        proven.append("the bounds of the errors throughout, with terms of the model bounded at all times in all errors")
    elif found.has_stop_bounds:
        missing.append("terms of the model with which errors act on themselves (estimated, with a measured allowance)")
    if robot.elasticity is not None:
        missing.append("the elasticity of the joints (bounds of the errors are those of rigid ones, and measured)")
    if found.has_stop_bounds:
        proven.append(
            "position, velocity and torque limits in stops along the path that begin at any time, with bounds of the "
            "errors in all of them"
        )
    elif found.settings.brake_times:
        proven.append(
            "torque limits in stops along the path, if errors grow there no more than is allowed for (those of the "
            f"position to {STOP_ERRORS:g} times the bound), which is measured, not proven"
        )
    else:
        missing.append("stops along the path")
    if robot.spheres:
        around = ["themselves"]
        for is_there, name in ((scene.ground_height is not None, "the ground"), (scene.obstacles, "obstacles")):
            (around if is_there else missing).append(
                f"{len(scene.obstacles)} {name}" if is_there and name == "obstacles" else name
            )
        proven.append(f"distances of the spheres of arm{' and payload' if has_payload else ''} to {', '.join(around)}")
        missing += describe_unchecked_links(robot)
        if not has_payload:
            missing.append("collisions of the payload")
    else:
        missing.append("collisions (no spheres are known)")
    return (
        f"Proven over continuous time for every parameter in the boxes and all errors within the bounds: "
        f"{'; '.join(proven)}. Not proven: {', '.join(missing) or 'nothing else that is known'}."
    )
