"""Odometry of a free-flying robot, its refusals, and transforms where ROS has them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
import yaml
from builtin_interfaces.msg import Time

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.resources import resource
from sysid_ros.ros import markers as transforms
from sysid_ros.ros.conversions.common import InvalidMessage
from sysid_ros.ros.markers import TransformBroadcaster
from sysid_ros.space.adapters.messages import draw_free_flyer, odometry_from_message, odometry_to_message
from sysid_ros.space.simulation import FloatingState


@pytest.fixture
def message(robot):
    rotation, position = pin.exp3(np.array([0.3, -0.4, 0.5])), np.array([1.0, 2.0, 3.0])
    measured = FloatingState(1.5, rotation, position, np.arange(1.0, 7.0), np.zeros(8), np.zeros(8))
    return odometry_to_message(robot, measured, Time(sec=1, nanosec=500_000_000))


def test_odometry_is_what_was_measured(robot, message):
    assert (message.header.frame_id, message.child_frame_id) == ("world", "base")
    twist, rotation, position = odometry_from_message(robot, message)
    np.testing.assert_array_equal(twist, np.arange(1.0, 7.0))
    np.testing.assert_allclose(rotation, pin.exp3(np.array([0.3, -0.4, 0.5])), atol=1e-12)
    np.testing.assert_array_equal(position, [1.0, 2.0, 3.0])
    covariance = message.twist.covariance.reshape(6, 6)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), np.repeat(robot.noise[:2], 3))
    assert np.count_nonzero(covariance) == 6


def test_odometry_that_cannot_be_used(robot, message):
    message.twist.twist.angular.y = float("nan")
    with pytest.raises(InvalidMessage, match="twist is .*nan.*the momentum equation needs the base's twist"):
        odometry_from_message(robot, message)
    message.twist.twist.angular.y = 0.0
    message.pose.pose.orientation.w = 2.0
    with pytest.raises(InvalidMessage, match="a unit quaternion is needed"):
        odometry_from_message(robot, message)
    message.child_frame_id = "imu"
    with pytest.raises(InvalidMessage, match="is 'imu', in whose axes the twist is; needed is the base, 'base'"):
        odometry_from_message(robot, message)


def test_markers_are_what_the_view_of_rviz_shows(robot):
    """In the frame of the base at the latest transform: robot, the way of the tool, and the object in its hand."""
    held = from_com_form(12.0, [0.2, 0.05, -0.03], np.diag([0.4, 0.7, 0.6]))
    about = {"method": "set_membership", "guarantee": "", "is_guaranteed": True, "is_consistent": True, "alarm": None}
    about |= {"target": "payload", "frame": "tool", "number_of_windows": 1, "data_seconds": 1.0}
    estimate = ParameterEstimate(held, held - 0.1, held + 0.1, condition_number=1.0, **about)
    axes = np.concatenate([robot.home, np.zeros(robot.wheels.count)])
    planned = CycloidTrajectory(np.array([axes, axes + 0.1]), 1.0)
    markers = draw_free_flyer(robot, robot.home, planned, estimate).markers
    drawn = [one for one in markers if one.action != one.DELETEALL]
    assert {(one.header.frame_id, one.header.stamp.sec) for one in drawn} == {(robot.base_link, 0)}
    view = yaml.safe_load(resource("rviz/space_robot.rviz").read_text())["Visualization Manager"]["Displays"]
    (shown,) = (one["Namespaces"] for one in view if "Namespaces" in one)
    assert {one.ns for one in drawn} == set(shown)
    # The CoM is where the hand is, from which it is 0.2 m away.
    states = robot.tree.evaluate(robot.home[None], np.zeros((1, robot.n)))
    body, placement = robot.frame("tool")
    place = states.rotations[0, body] @ placement.act(np.array([0.2, 0.05, -0.03])) + states.positions[0, body]
    com = next(one for one in drawn if one.ns == "com").pose.position
    np.testing.assert_allclose([com.x, com.y, com.z], place, atol=1e-12)


def test_transforms_where_ros_has_them(message, monkeypatch):
    sent, made = [], []

    def create_publisher(kind, name, profile):
        made.append((kind, name))
        return SimpleNamespace(publish=sent.append)

    node = SimpleNamespace(create_publisher=create_publisher)
    monkeypatch.setattr(transforms, "TFMessage", None)
    nowhere = TransformBroadcaster(node)
    nowhere.send(message.header, "base", message.pose.pose)
    assert not (made or sent)
    monkeypatch.setattr(transforms, "TFMessage", SimpleNamespace)
    broadcaster = TransformBroadcaster(node)
    broadcaster.send(message.header, "base", message.pose.pose)
    assert made == [(SimpleNamespace, "/tf")]
    (stamped,) = sent[0].transforms
    assert (stamped.header.frame_id, stamped.child_frame_id) == ("world", "base")
    assert stamped.transform.translation.z == 3.0
    assert stamped.transform.rotation == message.pose.pose.orientation
