"""Markers and transforms, for RViz and for recordings; markers are in the base frame of the arm or in frames of links.

The topics in a recording are the same as of ``robot_state_publisher`` and of the node ``monitor``. They are made here,
for the recording only: no other node has to publish them, and few markers are enough in the frames of links.
"""

from __future__ import annotations

import textwrap
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pinocchio as pin
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, Quaternion, Transform, TransformStamped, Vector3
from numpy.typing import ArrayLike, NDArray
from rclpy.node import Node
from rclpy.serialization import serialize_message
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.core.certification.certificate import Certificate, margin_rows
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.clearance import spheres_of_payload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.collision.swept import Nearest, SweptSpheres
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import bound_com, compute_inertia_ellipsoid, is_physically_consistent
from sysid_ros.core.model.links import LinkPose, LinkTree
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_to_message

try:
    from tf2_msgs.msg import TFMessage
except ImportError:  # on a machine without ROS there is no listener
    TFMessage = None


TRANSFORMS, FIXED_TRANSFORMS, TRANSFORM_TYPE = "/tf", "/tf_static", "tf2_msgs/msg/TFMessage"
"""Topics of transforms, and the type of their messages."""
RECORDED_PERIOD_NS = 40_000_000
"""Time between two transforms of a frame in a recording [ns]."""

Write = Callable[[str, str, Any, int], object]
"""Takes topic, type, message (or a mapping of its fields) and stamp [ns]: writes into a recording."""


def contents_of(message: Any) -> Any:
    """Return a message as a recording takes it: serialized, but for a mapping of fields, which stays as it is."""
    return message if isinstance(message, dict) else serialize_message(message)


def transforms_of(poses: Iterable[LinkPose], stamp_ns: int) -> list[TransformStamped]:
    """Return poses of links as transforms, with a stamp [ns]."""
    transforms = []
    for pose in poses:
        x, y, z = map(float, pose.translation)
        a, b, c, w = map(float, pin.Quaternion(pose.rotation).normalized().coeffs())
        transform = Transform(translation=Vector3(x=x, y=y, z=z), rotation=Quaternion(x=a, y=b, z=c, w=w))
        header = Header(stamp=stamp_to_message(stamp_ns), frame_id=pose.parent)
        transforms.append(TransformStamped(header=header, child_frame_id=pose.child, transform=transform))
    return transforms


def write_transforms(write: Write, topic: str, poses: Iterable[LinkPose], stamp_ns: int) -> None:
    """Write poses of links, with a stamp [ns], as transforms of ``/tf`` or ``/tf_static``."""
    write(topic, TRANSFORM_TYPE, {"transforms": transforms_of(poses, stamp_ns)}, stamp_ns)


class TransformBroadcaster:
    """Publishes poses on ``/tf``; does nothing where tf2 is not installed."""

    def __init__(self, node: Node):
        self._publisher = None if TFMessage is None else node.create_publisher(TFMessage, "/tf", qos.JOINT_STATES)

    def send(self, header: Header, child_frame_id: str, pose: Pose) -> None:
        """Publish the pose of the frame ``child_frame_id`` in the frame of the header."""
        if self._publisher is None:
            return
        place = pose.position
        transform = Transform(translation=Vector3(x=place.x, y=place.y, z=place.z), rotation=pose.orientation)
        stamped = TransformStamped(header=header, child_frame_id=child_frame_id, transform=transform)
        self._publisher.publish(TFMessage(transforms=[stamped]))


Array = NDArray[np.float64]

COLORS = {
    "arm": (0.55, 0.6, 0.68, 0.35),
    "plan": (0.1, 0.55, 0.9, 0.9),
    "payload": (0.95, 0.55, 0.1, 0.6),
    "com": (0.85, 0.1, 0.1, 1.0),
    "com_bounds": (0.85, 0.1, 0.1, 0.25),
    "text": (1.0, 1.0, 1.0, 0.95),
    "carried": (0.95, 0.55, 0.1, 0.3),
    "obstacles": (0.75, 0.35, 0.3, 0.6),
    "obstacles_unknown": (0.9, 0.1, 0.1, 0.9),
    "ground": (0.45, 0.45, 0.42, 0.5),
    "scene_text": (1.0, 1.0, 1.0, 0.95),
    "next_plan": (0.3, 0.85, 0.75, 0.7),
    "swept": (0.1, 0.55, 0.9, 0.05),
    "closest": (0.95, 0.2, 0.5, 1.0),
    "closest_text": (1.0, 0.6, 0.75, 1.0),
    "margins": (1.0, 1.0, 1.0, 0.95),
}
"""Colour of each namespace of markers: red, green, blue, opacity."""
COM_DIAMETER = 0.015
PATH_WIDTH = 0.006
TEXT_HEIGHT = 0.04
LEAST_SIZE = 1e-4
"""RViz does not draw markers of size zero [m]."""


class MarkerBuilder:
    """Collects markers; the array it builds replaces everything published before.

    Args:
        frame: Frame of all markers: the base frame of the arm.
        stamp: Their stamp.
    """

    def __init__(self, frame: str, stamp: Time):
        self._header = Header(frame_id=frame, stamp=stamp)
        self._markers = [Marker(header=self._header, action=Marker.DELETEALL)]
        self._is_stuck = False

    def stick_to(self, link: str) -> None:
        """Put the following markers into the frame of a link, with which they move."""
        self._header, self._is_stuck = Header(frame_id=link, stamp=self._header.stamp), True

    def array(self) -> MarkerArray:
        """All markers so far."""
        return MarkerArray(markers=self._markers)

    def add_sphere(self, namespace: str, center: ArrayLike, radius: float) -> None:
        """Add a sphere at center (3,) [m] with a radius [m]."""
        self._add(namespace, Marker.SPHERE, center, np.eye(3), np.full(3, 2.0 * radius))

    def add_path(self, namespace: str, points: ArrayLike) -> None:
        """Add a line through points (N, 3) [m]."""
        marker = self._add(namespace, Marker.LINE_STRIP, np.zeros(3), np.eye(3), [PATH_WIDTH, 0.0, 0.0])
        marker.points = [_point(point) for point in np.asarray(points, dtype=float)]

    def add_spheres(self, namespace: str, centers: ArrayLike, radius: float) -> None:
        """Spheres of one radius [m] at centers (N, 3) [m], as one marker."""
        marker = self._add(namespace, Marker.SPHERE_LIST, np.zeros(3), np.eye(3), np.full(3, 2.0 * radius))
        marker.points = [_point(point) for point in np.asarray(centers, dtype=float)]

    def add_box(self, namespace: str, center: ArrayLike, size: ArrayLike, rotation: ArrayLike | None = None) -> None:
        """Add a box at center (3,) [m] with edges (3,) [m]; the columns of the rotation (3, 3) are its axes."""
        turned = np.eye(3) if rotation is None else rotation
        self._add(namespace, Marker.CUBE, center, turned, np.maximum(size, LEAST_SIZE))

    def add_text(self, namespace: str, position: ArrayLike, text: str, height: float = TEXT_HEIGHT) -> None:
        """Text that faces the viewer, its middle at position (3,) [m], with letters of a height [m]."""
        marker = self._add(namespace, Marker.TEXT_VIEW_FACING, position, np.eye(3), [0.0, 0.0, height])
        marker.text = text

    def add_payload(self, estimate: ParameterEstimate, rotation: ArrayLike, origin: ArrayLike) -> None:
        """Add the payload: inertia ellipsoid, CoM, the box its CoM certainly lies in, and its mass in words.

        ``rotation`` (3, 3) and ``origin`` (3,) [m] are the frame of the last joint in the base frame.
        """
        rotation, origin = np.asarray(rotation, dtype=float), np.asarray(origin, dtype=float)
        lower, upper = bound_com(estimate.lower, estimate.upper)
        if np.all(np.isfinite(lower) & np.isfinite(upper)):
            middle = origin + rotation @ (0.5 * (lower + upper))
            self._add("com_bounds", Marker.CUBE, middle, rotation, np.maximum(upper - lower, LEAST_SIZE))
        if not (np.all(np.isfinite(estimate.values)) and is_physically_consistent(estimate.values)):
            return  # no point estimate yet, or one on the border of physical consistency
        ellipsoid = compute_inertia_ellipsoid(estimate.values)
        center = origin + rotation @ ellipsoid.center
        # A sphere marker with three different diameters is drawn as an ellipsoid.
        size = np.maximum(2.0 * ellipsoid.semi_axes, LEAST_SIZE)
        self._add("payload", Marker.SPHERE, center, rotation @ ellipsoid.rotation, size)
        self._add("com", Marker.SPHERE, center, np.eye(3), np.full(3, COM_DIAMETER))
        above = center + np.array([0.0, 0.0, float(ellipsoid.semi_axes.max()) + TEXT_HEIGHT])
        bounds = f"[{estimate.lower[0]:.3f}, {estimate.upper[0]:.3f}]"
        self.add_text("text", above, f"{estimate.values[0]:.3f} kg in {bounds}")

    def _add(self, namespace: str, kind: int, position: ArrayLike, rotation: ArrayLike, scale: ArrayLike) -> Marker:
        x, y, z, w = pin.Quaternion(np.asarray(rotation, dtype=float)).normalized().coeffs()
        red, green, blue, opacity = COLORS[namespace]
        size = np.asarray(scale, dtype=float)
        marker = Marker(
            header=self._header,
            ns=namespace,
            id=len(self._markers),
            type=kind,
            action=Marker.ADD,
            frame_locked=self._is_stuck,
            pose=Pose(position=_point(position), orientation=Quaternion(x=x, y=y, z=z, w=w)),
            scale=Vector3(x=float(size[0]), y=float(size[1]), z=float(size[2])),
            color=ColorRGBA(r=red, g=green, b=blue, a=opacity),
        )
        self._markers.append(marker)
        return marker


def _point(values: ArrayLike) -> Point:
    x, y, z = (float(value) for value in np.asarray(values, dtype=float))
    return Point(x=x, y=y, z=z)


GROUND_SIZE, GROUND_THICKNESS = 3.0, 0.002
"""Edge and thickness of the ground as it is drawn [m]."""
SMALL_TEXT = 0.028
"""Height of the letters of tables [m]."""
TEXT_WIDTH = 60
"""Letters in a line."""
ABOVE = 0.25
"""Height of a text above its object [m]."""


def draw_scene(builder: MarkerBuilder, scene: Scene, fault: str | None = None) -> None:
    """Draw obstacles with their names, and the ground; in red the last known scene where it is not known by a fault."""
    namespace = "obstacles" if fault is None else "obstacles_unknown"
    top = 1.2
    for obstacle in scene.obstacles:
        builder.add_box(namespace, obstacle.center, 2.0 * obstacle.half_extents, obstacle.rotation)
        height = float(np.abs(obstacle.rotation[2]) @ obstacle.half_extents)
        above = obstacle.center + np.array([0.0, 0.0, height + 1.5 * SMALL_TEXT])
        builder.add_text("scene_text", above, obstacle.name, SMALL_TEXT)
        top = max(top, above[2])
    if scene.ground_height is not None:
        # Its upper surface is the ground.
        center = [0.0, 0.0, scene.ground_height - 0.5 * GROUND_THICKNESS]
        builder.add_box("ground", center, [GROUND_SIZE, GROUND_SIZE, GROUND_THICKNESS])
    if fault is not None:
        text = "SCENE NOT KNOWN, nothing is certified\n" + textwrap.fill(fault, TEXT_WIDTH)
        builder.add_text("obstacles_unknown", [0.0, 0.0, top + ABOVE], text)


def draw_plan(
    builder: MarkerBuilder, path: Array, swept: SweptSpheres | None, certificate: Certificate, title: str
) -> None:
    """Draw a plan: path of the tool (N, 3) [m], swept room if given, smallest distance, and margins below a title."""
    builder.add_path("plan", path)
    top = float(path[:, 2].max())
    if swept is not None and swept.centers.size:
        for column, radius in enumerate(swept.radii):
            builder.add_spheres("swept", swept.centers[:, column], float(radius))
        top = max(top, float((swept.centers[..., 2] + swept.radii).max()))
        if swept.nearest is not None:
            _draw_nearest(builder, swept.nearest)
    lines = [title, *margin_lines(certificate)]
    # The text's middle is at its position: half of its height goes above the plan.
    height = top + 0.1 + 0.5 * len(lines) * 1.3 * SMALL_TEXT
    builder.add_text("margins", [0.0, 0.0, height], "\n".join(lines), SMALL_TEXT)


def margin_lines(certificate: Certificate) -> list[str]:
    """Return the statement of a certificate, in lines for a picture."""
    lines = ["proven over continuous time; smallest margins:"]
    lines += [f"{row.kind}: {row.value}  ({row.place})" for row in margin_rows(certificate)]
    return lines


def _draw_nearest(builder: MarkerBuilder, nearest: Nearest) -> None:
    first, second = nearest.points
    builder.add_path("closest", np.array([first, second]))
    for point in nearest.points:
        builder.add_sphere("closest", point, 1.2 * PATH_WIDTH)
    one, other = nearest.names
    least = f"{1e3 * nearest.distance:.0f} mm apart with errors, {1e3 * nearest.clearance:.0f} mm to keep"
    text = f"closest: {one} and {other}\n{least}, {nearest.time:.2f} s"
    builder.add_text("closest_text", 0.5 * (first + second) + [0.0, 0.0, 2.5 * SMALL_TEXT], text, SMALL_TEXT)


_REMEMBERED = 8


class PlanCache:
    """Keeps plans until they end.

    A plan is drawn from the moment it is published. The plan that the driver follows takes precedence over later ones;
    when the driver comes to rest, all plans published until then have ended.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[str, CertifiedPlan] = OrderedDict()
        self._followed: str | None = None
        self._waiting: str | None = None

    def on_plan(self, plan: CertifiedPlan) -> None:
        """Take a plan that was published."""
        self._plans[plan.plan_id] = plan
        self._plans.move_to_end(plan.plan_id)
        while len(self._plans) > _REMEMBERED:
            self._plans.popitem(last=False)

    def update(self, followed: str | None, waiting: str | None, now: float) -> None:
        """Take the status of the driver.

        Args:
            followed: ``plan_id`` of the plan it follows; None for none.
            waiting: ``plan_id`` of the plan that waits to take over; None for none.
            now: Time of its clock [s]; plans that have expired are forgotten unless the driver follows them.
        """
        before, self._followed, self._waiting = self._followed, followed, waiting
        if before and not followed:
            self._plans.clear()
        elif before and before != followed:
            self._plans.pop(before, None)
        for key, plan in list(self._plans.items()):
            if now >= plan.certificate.expires_at and key not in (followed, waiting):
                del self._plans[key]

    def lose_driver(self) -> None:
        """Forget which plan is followed: the status of the driver is missing."""
        if self._followed:
            self._plans.clear()
        self._followed = self._waiting = None

    @property
    def shown(self) -> CertifiedPlan | None:
        """The plan that is followed, or else the latest that is not followed yet."""
        if self._followed:
            return self._plans.get(self._followed)
        return next(reversed(self._plans.values()), None)

    @property
    def is_followed(self) -> bool:
        """Whether the shown plan is followed."""
        return self._followed in self._plans

    @property
    def waiting(self) -> CertifiedPlan | None:
        """The plan that will take over."""
        return self._plans.get(self._waiting) if self._waiting else None


MARKERS, PLAN_MARKERS, SCENE_MARKERS = "monitor/markers", "monitor/plan_markers", "monitor/scene_markers"
PATH_POINTS = 60
"""Points on the path of a plan."""


class Pictures:
    """Transforms and markers of one goal."""

    def __init__(self, robot: RobotModel, write: Write):
        self._robot, self._write = robot, write
        self._links, self._poses = LinkTree(robot.pin_model), BodyPoses(robot)
        self._last_ns: int | None = None
        self._scene = Scene()

    def on_posture(self, q: NDArray[np.float64], stamp_ns: int) -> None:
        """Take the positions of the joints (n,) [rad]: transforms, at most one for each period."""
        if self._last_ns is None:
            write_transforms(self._write, FIXED_TRANSFORMS, self._links.fixed, stamp_ns)
            self._draw_arm(None, stamp_ns)
        elif 0 <= stamp_ns - self._last_ns < RECORDED_PERIOD_NS:
            return
        self._last_ns = stamp_ns
        write_transforms(self._write, TRANSFORMS, self._links.moving(q), stamp_ns)

    def on_estimate(self, estimate: ParameterEstimate, stamp_ns: int) -> None:
        """Take an estimate: arm and payload."""
        self._draw_arm(estimate, stamp_ns)

    def on_plan(self, plan: CertifiedPlan, stamp_ns: int) -> None:
        """Take a plan that was published: its path and margins."""
        builder = self._builder(stamp_ns)
        times = np.linspace(0.0, plan.trajectory.duration, PATH_POINTS)
        path = self._poses.tool_path(plan.trajectory.sample(times)[0])
        draw_plan(builder, path, None, plan.certificate, "plan")
        self._write_markers(PLAN_MARKERS, builder.array(), stamp_ns)

    def on_scene(self, scene: Scene | None, fault: str | None, stamp_ns: int) -> None:
        """Take the scene, or the reason why it is not known."""
        self._scene = scene or Scene()
        builder = self._builder(stamp_ns)
        draw_scene(builder, self._scene, fault)
        self._write_markers(SCENE_MARKERS, builder.array(), stamp_ns)

    def _draw_arm(self, estimate: ParameterEstimate | None, stamp_ns: int) -> None:
        robot, builder = self._robot, self._builder(stamp_ns)
        for namespace, spheres in (("arm", robot.spheres), ("carried", spheres_of_payload(robot, self._scene))):
            for sphere in spheres:
                builder.stick_to(self._links.bodies[sphere.body])
                builder.add_sphere(namespace, sphere.center, sphere.radius)
        if estimate is not None and estimate.is_consistent:
            builder.stick_to(self._links.bodies[-1])
            builder.add_payload(estimate, np.eye(3), np.zeros(3))
        self._write_markers(MARKERS, builder.array(), stamp_ns)

    def _builder(self, stamp_ns: int) -> MarkerBuilder:
        return MarkerBuilder(self._robot.base_frame, stamp_to_message(stamp_ns))

    def _write_markers(self, topic: str, markers: MarkerArray, stamp_ns: int) -> None:
        self._write(topic, "visualization_msgs/msg/MarkerArray", markers, stamp_ns)
