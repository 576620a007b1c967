"""Joints are found by name; what a message does not say is not guessed."""

import numpy as np
import pytest

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.ros2_control.states import ControllerInfo, JointReader, JointStates
from sysid_ros.drivers.ros2_control.takeover import order_of_commands
from sysid_ros.drivers.takeover import TakeoverRefused


def message(robot, order=None, stamp=10, **changes):
    """Values that tell the joint: 1, 2, ... for positions, times 10 and 100 for velocities and efforts."""
    names = tuple(order or robot.joint_names)
    number = {name: 1.0 + k for k, name in enumerate(robot.joint_names)}
    position = [number.get(name, -1.0) for name in names]
    values = {"position": position, "velocity": [10 * x for x in position], "effort": [100 * x for x in position]}
    return JointStates(stamp, names, **{**values, **changes})


@pytest.fixture
def reader(robot):
    return JointReader(robot, needs_velocity=True)


def test_any_order_with_joints_of_others_gives_the_order_of_the_model(robot, reader):
    expected = np.arange(1.0, 8.0)
    rng = np.random.default_rng(1)
    for _ in range(20):
        order = ["finger", *robot.joint_names, "lid"]
        rng.shuffle(order)
        reading = reader.read(message(robot, order))
        np.testing.assert_array_equal(reading.v, 10 * expected)
        np.testing.assert_array_equal(reading.tau, robot.sensors.effort_sign * 100 * expected)
        np.testing.assert_array_equal(np.round(np.cos(reading.q), 12), np.round(np.cos(expected), 12))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"order": ["joint_1", "joint_3"]}, "joints joint_2, joint_4, joint_5, joint_6, joint_7 are missing; it names"),
        ({"order": [f"joint_{k}" for k in (1, 2, 3, 4, 5, 6, 7, 7)]}, "joints joint_7 are named twice"),
        ({"stamp": 0}, "header.stamp is zero"),
        ({"effort": []}, "effort has 0 entries for 7 joints"),
        ({"velocity": []}, "velocity has 0 entries for 7 joints; with velocity_source: positions"),
        ({"position": [0.0, np.nan, *[0.0] * 5]}, "the position of joint_2 is nan$"),
        ({"velocity": [np.inf] * 7}, "the velocity of joint_1 is inf; with velocity_source: positions"),
        ({"position": [0.0] * 6}, "position has 6 entries for 7 joints"),
    ],
)
def test_what_is_missing_is_named(robot, reader, changes, words):
    with pytest.raises(ArmError, match=words):
        reader.read(message(robot, **changes))


def test_velocities_are_needed_only_where_they_are_taken_from_messages(robot):
    reading = JointReader(robot, needs_velocity=False).read(message(robot, velocity=[]))
    assert np.isnan(reading.v).all() and reading.q.size == 7


def test_messages_about_other_joints_are_told_apart(robot, reader):
    assert not reader.is_about(JointStates(1, ("finger",), [0.0]))
    assert reader.is_about(JointStates(1, ("finger", "joint_4"), [0.0, 0.0]))


def test_endless_joints_are_unwrapped_and_others_are_not(robot, reader):
    is_endless = ~np.isfinite(robot.limits.q_lower)
    assert is_endless.any() and not is_endless.all()
    turns = np.linspace(0.0, 20.0, 400)
    wrapped = (turns + np.pi) % (2 * np.pi) - np.pi
    seen = np.array([reader.read(message(robot, position=[x] * 7)).q for x in wrapped])
    np.testing.assert_allclose(seen[:, is_endless], np.repeat(turns[:, None], is_endless.sum(), axis=1), atol=1e-9)
    np.testing.assert_array_equal(seen[:, ~is_endless], np.repeat(wrapped[:, None], (~is_endless).sum(), axis=1))


def test_a_position_that_is_not_a_number_does_not_spoil_the_next(robot, reader):
    reader.read(message(robot, position=[3.1] * 7))
    with pytest.raises(ArmError):
        reader.read(message(robot, position=[np.nan] * 7))
    is_endless = ~np.isfinite(robot.limits.q_lower)
    after = reader.read(message(robot, position=[-3.1] * 7)).q
    np.testing.assert_allclose(after[is_endless], 2 * np.pi - 3.1)


def test_the_order_of_commands_is_that_of_the_controller(robot):
    names = robot.joint_names
    backwards = tuple(reversed(names))
    assert order_of_commands(robot, (), ControllerInfo(backwards)) == (6, 5, 4, 3, 2, 1, 0)
    assert order_of_commands(robot, backwards, None) == (6, 5, 4, 3, 2, 1, 0)
    assert order_of_commands(robot, names, ControllerInfo(names)) == tuple(range(7))


@pytest.mark.parametrize(
    ("given", "told", "words"),
    [
        ((), None, "the order of the commands is not known"),
        ("model", "backwards", "the controller takes commands in the order joint_7, .* command_joints says joint_1"),
        ((), "short", "commands are for the joints joint_1, joint_2; the model has"),
        ((), "position", "writes to the interface 'position', not to 'effort'"),
    ],
)
def test_an_order_that_is_not_certain_is_refused(robot, given, told, words):
    names = robot.joint_names
    infos = {
        "backwards": ControllerInfo(names[::-1]), "short": ControllerInfo(names[:2]),
        "position": ControllerInfo(names, "position"),
    }  # fmt: skip
    with pytest.raises(TakeoverRefused, match=words):
        order_of_commands(robot, names if given == "model" else given, infos.get(told))
