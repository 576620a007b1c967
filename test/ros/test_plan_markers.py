"""Markers of plans and scenes: where, how large, and what is said."""

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from visualization_msgs.msg import Marker

from sysid_ros.core.certification.certificate import Certificate, Margin
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.collision.swept import Nearest, SweptSpheres
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import Sphere
from sysid_ros.ros.markers import MarkerBuilder, draw_plan, draw_scene

TURN = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def draw(function, *arguments):
    builder = MarkerBuilder("base_link", Time(sec=3))
    function(builder, *arguments)
    markers = builder.array().markers
    assert markers[0].action == Marker.DELETEALL and len({marker.id for marker in markers[1:]}) == len(markers) - 1
    return markers[1:]


def of(markers, namespace):
    return [marker for marker in markers if marker.ns == namespace]


def vector(point):
    return np.array([point.x, point.y, point.z])


def certificate():
    nothing, two = "0" * 64, np.zeros(2)
    margins = (
        Margin(LimitKind.TORQUE, 0.035, "joint 'joint_2'", 0.5),
        Margin(LimitKind.OBSTACLE, 0.012, "hand and table", 1.2),
    )
    return Certificate(
        nothing, nothing, nothing, nothing, ControlLaw("none"), np.zeros(10), None, 0.0, 0.0, two, two, two,
        np.zeros((2, 2)), 1.0, 0.3, "", margins, 0.0, 1.0,
    )  # fmt: skip


def test_scene():
    table = Obstacle("table", [0.5, 0.1, 0.05], [0.2, 0.35, 0.05], TURN)
    markers = draw(draw_scene, Scene(obstacles=(table,), ground_height=-0.1))
    (box,), (ground,), (name,) = of(markers, "obstacles"), of(markers, "ground"), of(markers, "scene_text")
    assert box.type == Marker.CUBE
    np.testing.assert_allclose(vector(box.pose.position), table.center)
    np.testing.assert_allclose(vector(box.scale), 2.0 * table.half_extents)
    turned = box.pose.orientation
    np.testing.assert_allclose([turned.x, turned.y, turned.z, turned.w], [0.5, 0.5, 0.5, 0.5])
    assert ground.pose.position.z + 0.5 * ground.scale.z == pytest.approx(-0.1)
    # The name stands above the box as it is turned: its own second axis (0.35) points up.
    assert name.text == "table" and name.pose.position.z > 0.05 + 0.35
    assert not of(markers, "obstacles_unknown") and draw(draw_scene, Scene()) == []


def test_a_scene_with_a_fault_is_red_and_says_why():
    table = Obstacle("table", [0.5, 0.1, 0.05], [0.2, 0.35, 0.05])
    markers = draw(draw_scene, Scene(obstacles=(table,)), "marker 3 of the obstacles is not a number; publish it again")
    assert not of(markers, "obstacles")
    box, text = of(markers, "obstacles_unknown")
    assert box.type == Marker.CUBE and text.type == Marker.TEXT_VIEW_FACING
    assert "NOT KNOWN" in text.text and "not a number" in text.text
    assert max(map(len, text.text.split("\n"))) <= 60


def test_plan():
    spheres = (Sphere(1, np.zeros(3), 0.1, "arm"), Sphere(2, np.zeros(3), 0.05, "hand"))
    centers = np.arange(18.0).reshape(3, 2, 3) / 10.0
    nearest = Nearest(0.021, 1.23, ("hand", "table"), np.array([[0.0, 0.0, 0.5], [0.0, 0.0, 0.4]]), 0.01)
    swept = SweptSpheres(np.arange(3.0), centers, np.array([0.11, 0.07]), spheres, nearest)
    path = np.arange(12.0).reshape(4, 3) / 10.0
    markers = draw(draw_plan, path, swept, certificate(), "plan followed")
    first, second = of(markers, "swept")
    assert first.type == second.type == Marker.SPHERE_LIST
    np.testing.assert_allclose([vector(point) for point in second.points], centers[:, 1])
    np.testing.assert_allclose([vector(first.scale), vector(second.scale)], [[0.22] * 3, [0.14] * 3])
    assert 0.0 < first.color.a < 0.2
    line = next(marker for marker in of(markers, "closest") if marker.type == Marker.LINE_STRIP)
    np.testing.assert_allclose([vector(point) for point in line.points], nearest.points)
    (text,) = of(markers, "closest_text")
    assert text.text == "closest: hand and table\n21 mm apart with errors, 10 mm to keep, 1.23 s"
    (margins,) = of(markers, "margins")
    assert margins.text.split("\n") == [
        "plan followed", "proven over continuous time; smallest margins:", "torque: 3.5 %  (joint 'joint_2', 0.500 s)",
        "obstacle: 12 mm  (hand and table, 1.200 s)",
    ]  # fmt: skip
    assert margins.pose.position.z > centers[..., 2].max() + 0.1
