"""A description with identified parameters: it reads back as them, and keeps what it can."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.inertia import is_physically_consistent
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.model.urdf import build_arm_model, read_urdf
from sysid_ros.reports.arm import arm_urdf


def inertias(robot, text):
    bodies = build_arm_model(read_urdf(text), robot.joint_names).inertias[1:]
    return np.array([inertia.toDynamicParameters() for inertia in bodies])


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7", "kinova_gen3"])
def test_it_reads_back_as_the_parameters(name):
    robot = load_textbook(name)
    theta = sample_parameters(robot, np.random.default_rng(5))
    text = arm_urdf(robot, theta, "arm -- 7")
    found = inertias(robot, text)
    np.testing.assert_allclose(found, theta[: 10 * robot.n].reshape(-1, 10), rtol=1e-8, atol=1e-10)
    root = ET.fromstring(text)
    friction = robot.friction(theta)
    for index, joint in enumerate(robot.joint_names):
        dynamics = root.find(f"joint[@name='{joint}']/dynamics")
        if robot.sensors.effort_meaning.value == "motor_side":
            assert float(dynamics.get("damping")) == friction[index, 1]
            assert float(dynamics.get("friction")) == friction[index, 0]
    assert {link.get("name") for link in root.findall("link")} == {
        link.get("name") for link in ET.fromstring(robot.urdf).findall("link")
    }


def test_the_link_takes_the_whole_where_nothing_is_left_for_it():
    """A hand that weighs less than the description says: no body is left for the link it is fixed to."""
    robot = load_textbook()
    theta = robot.theta_nominal.copy()
    last = robot.inertial_slice(robot.n)
    theta[last] *= 0.4
    assert is_physically_consistent(theta[last])
    text = arm_urdf(robot, theta)
    np.testing.assert_allclose(inertias(robot, text)[-1], theta[last], rtol=1e-8, atol=1e-10)


def test_parameters_of_no_body_are_refused():
    robot = load_textbook("kinova_gen3")
    theta = robot.theta_nominal.copy()
    theta[robot.inertial_slice(3)][0] *= -1.0
    with pytest.raises(SysidError, match="no body can have the parameters of everything moved by joint_3"):
        arm_urdf(robot, theta)
