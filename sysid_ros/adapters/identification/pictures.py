"""Additions to a recording besides the messages of the suite, for viewers: transforms and markers.

The topics are the same as of ``robot_state_publisher`` and of the node ``monitor``. They are made here, for the
recording only: no other node has to publish them, and markers are in the frames of links, so few of them are enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from visualization_msgs.msg import MarkerArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.clearance import spheres_of_payload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.links import LinkTree
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.markers import (
    FIXED_TRANSFORMS,
    RECORDED_PERIOD_NS,
    TRANSFORMS,
    MarkerBuilder,
    Write,
    draw_plan,
    draw_scene,
    write_transforms,
)

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
