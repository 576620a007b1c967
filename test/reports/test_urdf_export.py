"""The updated URDF: the arm as it was, plus the payload, seen by two readers."""

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import NotPhysicallyConsistent, SysidError
from sysid_ros.reports.payload import summarize_payload
from sysid_ros.reports.payload_files import PAYLOAD_LINK, add_payload
from sysid_ros.reports.writer import updated_urdf


def _arm(urdf, joints):
    full = pin.buildModelFromXML(urdf)
    locked = [full.getJointId(name) for name in full.names[1:] if name not in joints]
    return pin.buildReducedModel(full, locked, pin.neutral(full))


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
def test_dynamics_equal_arm_and_payload(result, name):
    robot = load_textbook(name)
    payload = summarize_payload(result).parameters.values  # about the last joint
    placement = robot.pin_model.frames[robot.pin_model.getFrameId(robot.tool_frame)].placement
    at_tool = placement.actInv(pin.Inertia.FromDynamicParameters(payload)).toDynamicParameters()
    model = _arm(add_payload(robot.urdf, robot.tool_frame, at_tool), robot.joint_names)
    bare = _arm(robot.urdf, robot.joint_names)
    bare.inertias[bare.njoints - 1] += pin.Inertia.FromDynamicParameters(payload)
    rng = np.random.default_rng(2)
    for _ in range(20):
        q = pin.randomConfiguration(bare, -np.ones(bare.nq), np.ones(bare.nq))
        v, a = rng.standard_normal((2, bare.nv))
        expected = pin.rnea(bare, bare.createData(), q, v, a)
        assert np.allclose(pin.rnea(model, model.createData(), q, v, a), expected, rtol=1e-10, atol=1e-10)


def test_a_wrong_payload_changes_the_dynamics(result):
    """The comparison above would notice a mass that is off by a gram."""
    robot = result.robot
    parameters = summarize_payload(result, robot.tool_frame).parameters.values.copy()
    models = []
    for mass in (parameters[0], parameters[0] + 1e-3):
        parameters[0] = mass
        models.append(_arm(add_payload(robot.urdf, robot.tool_frame, parameters), robot.joint_names))
    q = pin.integrate(models[0], pin.neutral(models[0]), np.full(robot.n, 0.7))
    gravity = [pin.computeGeneralizedGravity(m, m.createData(), q) for m in models]
    assert not np.allclose(*gravity, atol=1e-6)


def test_the_rest_of_the_file_is_untouched(result):
    text = updated_urdf(result)
    before = result.robot.urdf[: result.robot.urdf.rindex("</robot>")].rstrip()
    assert text.startswith(before) and text.count(f'<link name="{PAYLOAD_LINK}">') == 1


def test_wrong_names_and_bodies_are_refused(result):
    urdf, theta = result.robot.urdf, summarize_payload(result, result.robot.tool_frame).parameters.values
    with pytest.raises(SysidError, match="link 'nowhere' is unknown; there are .*bracelet_link"):
        add_payload(urdf, "nowhere", theta)
    once = add_payload(urdf, result.robot.tool_frame, theta)
    with pytest.raises(SysidError, match="has a link 'identified_payload' already"):
        add_payload(once, result.robot.tool_frame, theta)
    with pytest.raises(SysidError, match="not XML"):
        add_payload("<robot", "base_link", theta)
    with pytest.raises(NotPhysicallyConsistent, match="identified_payload"):
        add_payload(urdf, result.robot.tool_frame, -theta)


def test_a_second_payload_can_have_another_name(result):
    theta = summarize_payload(result, result.robot.tool_frame).parameters.values
    once = add_payload(result.robot.urdf, result.robot.tool_frame, theta)
    twice = add_payload(once, result.robot.tool_frame, theta, link="camera", comment="a -- b")
    added = pin.computeTotalMass(pin.buildModelFromXML(twice)) - pin.computeTotalMass(
        pin.buildModelFromXML(result.robot.urdf)
    )
    assert added == pytest.approx(2 * theta[0])
