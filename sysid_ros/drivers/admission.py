"""Conditions on a trajectory before an arm executes it, whatever its source, and the scene it must be certified for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch
from sysid_ros.core.certification.continuous import Load, find_heat
from sysid_ros.core.certification.held_feedback import WINDOW
from sysid_ros.core.certification.ranges import LONGEST_MOTION, find_out_of_range
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopRefusal, RefusalCode

_WHAT = "trajectory"
_REST_TOLERANCE = 1e-6
"""Largest start velocity [rad/s] and acceleration [rad/s^2] that count as rest; planners reach about 1e-9."""
_SAME_START = 1e-6
"""Largest difference between the held position and the start of a proven motion [rad], by rounding."""
_OTHER_PLACE = (
    "it starts {:.6f} rad away from the held position of {}" + f" (allowed {_SAME_START:g} rad); plan it again"
)
NOT_CERTIFIED = "it has no certificate; let the safe planner certify it"
"""Reason for refusing an uncertified motion."""
_TAKEOVER_TOLERANCES = (("position", "rad", 1e-9), ("velocity", "rad/s", 1e-8), ("acceleration", "rad/s^2", 1e-7))
"""Largest differences at the takeover: rounding of two evaluations of the same state."""


def admit_trajectory(
    robot: RobotModel, trajectory: Trajectory, certificate: Certificate | None, boxes: tuple[Box, ...], now: float
) -> Certificate:
    """Check all conditions that do not depend on the arm's state; takes milliseconds, so not in a real-time cycle.

    Args:
        robot: The robot of this driver.
        trajectory: The motion.
        certificate: Its certificate, which is returned; None is refused.
        boxes: Parameter boxes of the model in use: the arm's (14 n,), then the payload's (10,).
        now: Time of the loop's clock [s].

    Raises:
        LoopRefusal: With the joint and by how much, or the mismatch.
    """
    if certificate is None:
        raise LoopRefusal(_WHAT, NOT_CERTIFIED, RefusalCode.NO_CERTIFICATE)
    _require_size(robot, trajectory)
    for problem in find_out_of_range(robot, certificate):
        raise LoopRefusal(_WHAT, problem, RefusalCode.OUT_OF_RANGE)
    try:
        certificate.matches(trajectory, *boxes)
    except CertificateMismatch as mismatch:
        raise LoopRefusal(_WHAT, str(mismatch), RefusalCode.OTHER_ASSUMPTIONS) from mismatch
    try:
        certificate.require_valid(now)
    except CertificateMismatch as mismatch:
        raise LoopRefusal(_WHAT, str(mismatch), RefusalCode.EXPIRED) from mismatch
    _require_same_robot(robot, certificate)
    if certificate.predecessor is None:
        _require_start_at_rest(robot, trajectory)
    _require_within_limits(robot, trajectory)
    return certificate


def admit_uncertified(robot: RobotModel, trajectory: Trajectory, reference: Array) -> None:
    """Check a motion without a certificate: its start at the desired position (n,) [rad], its duration and its limits.

    Raises:
        LoopRefusal: With the joint and by how much.
    """
    _require_size(robot, trajectory)
    _require_start_at_rest(robot, trajectory)
    _require_small(robot, trajectory.start - reference, _SAME_START, _OTHER_PLACE)
    _require_within_limits(robot, trajectory)


def admit_control(certificate: Certificate, law: ControlLaw, nominal_payload: Array) -> None:
    """Check that the tracking bound of an admitted certificate holds for this controller.

    ``nominal_payload`` (10,) is the payload of its torque during the motion.

    Raises:
        LoopRefusal: Something differs from the certificate's assumptions.
    """
    try:
        certificate.matches_control(law, nominal_payload)
    except CertificateMismatch as mismatch:
        raise LoopRefusal(_WHAT, str(mismatch), RefusalCode.OTHER_ASSUMPTIONS) from mismatch


def admit_start(
    robot: RobotModel, trajectory: Trajectory, certificate: Certificate, reference: Array, rested: float
) -> None:
    """Check that a start from rest happens as the certificate assumes, and where the arm is held.

    ``reference`` is the desired position, (n,) [rad]; ``rested``, how long the arm has been held undisturbed [s].

    Raises:
        LoopRefusal: With the joint and by how much, or how long the arm must rest.
    """
    try:
        certificate.matches_start(rested)
    except CertificateMismatch as mismatch:
        code = RefusalCode.OTHER_START if certificate.predecessor is not None else RefusalCode.NOT_READY
        raise LoopRefusal(_WHAT, str(mismatch), code) from mismatch
    _require_small(robot, trajectory.start - reference, _SAME_START, _OTHER_PLACE)


def admit_takeover(
    robot: RobotModel, trajectory: Trajectory, certificate: Certificate, present: Trajectory, present_id: str
) -> None:
    """Check that a trajectory begins exactly in the state in which its predecessor (``present``) is left.

    Raises:
        LoopRefusal: It continues another plan, from a time that plan does not have, or with a jump.
    """
    predecessor, time = certificate.predecessor, certificate.takeover_time
    if predecessor != present_id:
        continued = "no plan" if predecessor is None else f"plan {predecessor[:12]}"
        text = f"it continues {continued}, but the arm follows {present_id[:12]}; plan it again"
        raise LoopRefusal(_WHAT, text, RefusalCode.OTHER_START)
    if not 0.0 < time <= present.duration:
        text = f"it takes over after {time:g} s of a plan of {present.duration:g} s; expected above 0, at most that"
        raise LoopRefusal(_WHAT, text, RefusalCode.OTHER_START)
    states = zip(trajectory.evaluate(0.0), present.evaluate(time), _TAKEOVER_TOLERANCES, strict=True)
    for starts, left, (name, unit, tolerance) in states:
        jump = np.abs(starts - left)
        joint = int(np.argmax(np.where(np.isnan(jump), np.inf, jump)))
        if not jump[joint] <= tolerance:
            text = f"the {name} of {robot.joint_names[joint]} would jump by {jump[joint]:.3g} {unit} at the takeover"
            raise LoopRefusal(_WHAT, text, RefusalCode.OTHER_START)


def admit_load(
    robot: RobotModel, past: Load, trajectory: Trajectory, certificate: Certificate, held: Array | None = None
) -> None:
    """Check that a motion and the hold after it keep the continuous torque limits, together with the past.

    Joints that cannot stay as they are held, by torques (n,) [Nm], may leave in any case: the motion ends where they
    can. None is held where the arm moves.

    Raises:
        LoopRefusal: With the joint, and how long to wait.
    """
    squares, limits = certificate.torque_squares, robot.limits
    if held is not None:
        may_stay = np.abs(held) <= limits.tau_continuous
        limits = replace(limits, tau_continuous=np.where(may_stay, limits.tau_continuous, np.inf))
    coming = Load.of_plan(squares, trajectory.duration)
    heat = find_heat(limits, past, coming, squares[-1])
    if heat is not None and heat.share > 1.0:
        name, limit = robot.joint_names[heat.joint], limits.tau_continuous[heat.joint]
        when = f"{heat.time:.1f} s after its start" if heat.hold <= 0.0 else f"held for {heat.hold:.0f} s after it"
        raise LoopRefusal(
            _WHAT,
            f"{name} would reach {heat.value:.3g} Nm in the root mean square over {WINDOW:g} s, {when}, with the "
            f"torque before; its continuous limit is {limit:.3g} Nm: rest, and plan it again",
        )


def _require_size(robot: RobotModel, trajectory: Trajectory) -> None:
    if trajectory.n != robot.n:
        text = f"it has {trajectory.n} joints, the arm has {robot.n}"
        raise LoopRefusal(_WHAT, text, RefusalCode.MALFORMED)
    if not trajectory.duration <= LONGEST_MOTION:
        text = f"it takes {trajectory.duration:g} s, allowed are {LONGEST_MOTION:g} s"
        raise LoopRefusal(_WHAT, text, RefusalCode.OUT_OF_RANGE)


def _require_start_at_rest(robot: RobotModel, trajectory: Trajectory) -> None:
    _, v, a = trajectory.evaluate(0.0)
    _require_small(robot, v, _REST_TOLERANCE, "it starts with {:.6f} rad/s at {}; it must start at rest")
    _require_small(robot, a, _REST_TOLERANCE, "it starts with {:.6f} rad/s^2 at {}; it must start at rest")


def _require_same_robot(robot: RobotModel, certificate: Certificate) -> None:
    """Refuse a proof with other limits or spheres: two files of one name may differ in them."""
    own, stated = robot_hash(robot), certificate.robot_hash
    if stated != own:
        raise LoopRefusal(
            _WHAT,
            f"its certificate is for a robot {stated[:12] or 'that is not stated'}, but '{robot.name}' of this driver "
            f"is {own[:12]}; planner and driver need the same model",
            RefusalCode.OTHER_ASSUMPTIONS,
        )


def _require_small(robot: RobotModel, values: Array, tolerance: float, words: str) -> None:
    worst = int(np.argmax(np.where(np.isfinite(values), np.abs(values), np.inf)))
    if not abs(values[worst]) <= tolerance:
        text = words.format(values[worst], robot.joint_names[worst])
        raise LoopRefusal(_WHAT, text, RefusalCode.OTHER_START)


def _require_within_limits(robot: RobotModel, trajectory: Trajectory) -> None:
    limits = robot.limits
    ranges = (
        ("position", "rad", trajectory.position_extrema(), limits.q_lower, limits.q_upper),
        ("velocity", "rad/s", trajectory.velocity_extrema(), -limits.v_max, limits.v_max),
    )
    for name, unit, (lowest, highest), lower, upper in ranges:
        excess = np.maximum(lower - lowest, highest - upper)
        worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
        if not excess[worst] <= 0.0:
            raise LoopRefusal(
                _WHAT,
                f"the {name} of {robot.joint_names[worst]} reaches {lowest[worst]:.4f} to {highest[worst]:.4f} {unit}, "
                f"which exceeds its limits {lower[worst]:.4f} to {upper[worst]:.4f} by {excess[worst]:.4f} {unit}",
                RefusalCode.NOT_PROVEN,
            )


SCENE_PERIOD = 0.5
"""Period at which a safe planner repeats the scene [s]."""
SCENE_TIMEOUT = 5.0
"""A scene that was not repeated for longer is unknown: no new motion is allowed in it [s]."""
SOURCE_MEMORY = 2.0
"""A source of scenes that has published nothing for longer than this has gone [s]."""


class SceneGuard:
    """Compares certificates with the present scene, and the present scene with the motion's.

    While two sources publish scenes, the scene is unknown: certificates of one would be judged by the scene of the
    other.

    Args:
        required: Smallest content of every scene, by the configuration of the driver.

    Attributes:
        present: The present scene; None if unknown.
        fault: Why the scene is unknown; None if it is known.
    """

    def __init__(self, required: Scene) -> None:
        self._required = required
        self.present: Scene | None = None
        self.fault: str | None = "no scene has been received yet; the safe planner publishes it"
        self._certified: dict[str, Scene] = {}
        self._sources: dict[str, float] = {}  # by name: when they spoke last [s]
        self._spoke = -np.inf  # when the present scene was last said [s]

    @property
    def hash(self) -> str | None:
        """Hash of the present scene; None if unknown."""
        return None if self.present is None else self.present.hash()

    def admit(self, certificate: Certificate, now: float) -> Scene:
        """Check that a certificate is about the present scene at a steady time [s], and return the scene.

        Raises:
            LoopRefusal: It is about another scene, or the scene is unknown or too old.
        """
        if self.present is None:
            raise LoopRefusal(_WHAT, f"the scene is not known: {self.fault}", RefusalCode.OTHER_ASSUMPTIONS)
        age = now - self._spoke
        if not age <= SCENE_TIMEOUT:
            text = f"the last scene came {age:.1f} s ago (allowed {SCENE_TIMEOUT:g} s); does the safe planner run?"
            raise LoopRefusal(_WHAT, text, RefusalCode.OTHER_ASSUMPTIONS)
        present = self.present.hash()
        if certificate.scene_hash != present:
            raise LoopRefusal(
                _WHAT,
                f"it was certified for scene {certificate.scene_hash[:12] or 'none'}, but the present one is "
                f"{present[:12]}; plan it again",
                RefusalCode.OTHER_ASSUMPTIONS,
            )
        # The motion before may still be on its way.
        self._certified = dict([*self._certified.items(), (present, self.present)][-2:])
        return self.present

    def find_conflict(self, source: str, now: float) -> str | None:
        """Record a message of a source at a steady time [s], and return why it does not count; None if it does."""
        self._sources[source] = self._spoke = now
        self._sources = {name: spoke for name, spoke in self._sources.items() if now - spoke <= SOURCE_MEMORY}
        if len(self._sources) == 1:
            return None
        names = ", ".join(sorted(name or "one without a name" for name in self._sources))
        return f"{len(self._sources)} safe planners publish a scene ({names}); stop all but one"

    def update(self, scene: Scene) -> str | None:
        """Update the present scene and return why motions must stop; None if they may go on."""
        missing = self._required.find_missing(scene)
        if missing is not None:
            return self.invalidate(
                f"it lacks what this driver is configured to demand: {missing}; give arm_driver and safe_planner the "
                "same scene, has_ground, ground_height and clearance"
            )
        self.present, self.fault = scene, None
        if all(scene.find_missing(certified) is None for certified in self._certified.values()):
            return None
        return "the scene has changed since the motion was certified"

    def invalidate(self, fault: str) -> str:
        """Record why the scene is unknown, and return why motions must stop."""
        self.present, self.fault = None, fault
        return f"the scene is no longer known: {fault}"
