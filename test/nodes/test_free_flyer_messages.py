"""Odometry of a free-flying robot, its refusals, and transforms where ROS has them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
from builtin_interfaces.msg import Time

from sysid_ros.adapters.free_flyer.driver import Measurement
from sysid_ros.adapters.free_flyer.messages import odometry_from_message, odometry_to_message
from sysid_ros.core.free_floating.robot import load_free_flyer
from sysid_ros.ros import transforms
from sysid_ros.ros.conversions.common import InvalidMessage
from sysid_ros.ros.transforms import TransformBroadcaster


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("servicer")


@pytest.fixture
def message(robot):
    rotation, position = pin.exp3(np.array([0.3, -0.4, 0.5])), np.array([1.0, 2.0, 3.0])
    measured = Measurement(1.5, np.arange(1.0, 7.0), np.zeros(8), np.zeros(8), rotation, position)
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


def test_transforms_where_ros_has_them(message, monkeypatch):
    sent, made = [], []

    def create_publisher(kind, name, profile):
        made.append((kind, name))
        return SimpleNamespace(publish=sent.append)

    node = SimpleNamespace(create_publisher=create_publisher)
    monkeypatch.setattr(transforms, "TFMessage", None)
    nowhere = TransformBroadcaster(node)
    nowhere.send(message.header, "base", message.pose.pose)
    assert not (nowhere.is_available or made or sent)
    monkeypatch.setattr(transforms, "TFMessage", SimpleNamespace)
    broadcaster = TransformBroadcaster(node)
    broadcaster.send(message.header, "base", message.pose.pose)
    assert broadcaster.is_available
    assert made == [(SimpleNamespace, "/tf")]
    (stamped,) = sent[0].transforms
    assert (stamped.header.frame_id, stamped.child_frame_id) == ("world", "base")
    assert stamped.transform.translation.z == 3.0
    assert stamped.transform.rotation == message.pose.pose.orientation
