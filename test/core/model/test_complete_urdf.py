"""Joints locked where they rest, inertias repaired, masses proposed: against Pinocchio, numpy and chance."""

import xml.etree.ElementTree as ET

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.complete_urdf import (
    Solid,
    bodies_inside,
    lock_joints,
    propose_masses,
    repair_inertias,
    solids_of_links,
)
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.core.model.urdf import build_arm_model, read_urdf

BODY = """<inertial><origin xyz="0.05 0 0.1"/><mass value="{m}"/>
<inertia ixx="{x}" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.01"/></inertial>"""
SOUND = BODY.format(m=2, x=0.02)


def lifted(upper=SOUND, kind="prismatic"):
    """Return the URDF of two links on a slanted lift, with a camera bolted to the last."""
    links = {"world": "", "carriage": "", "upper": upper, "lower": BODY.format(m=1, x=0.02), "camera": ""}
    joints = [
        ("lift", kind, "0 0.6 0.8"),
        ("a", "revolute", "0 1 0"),
        ("b", "revolute", "0 1 0"),
        ("bolt", "fixed", ""),
    ]
    text = "".join(f'<link name="{name}">{inertial}</link>' for name, inertial in links.items())
    for (name, kind, axis), parent, child in zip(joints, links, list(links)[1:], strict=False):
        text += f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        text += '<origin xyz="0.1 0 0.3" rpy="0.4 0 0.2"/><limit lower="0.1" upper="0.9" velocity="2" effort="50"/>'
        text += (f'<axis xyz="{axis}"/>' if axis else "") + "</joint>"
    return f'<robot name="lifted">{text}</robot>'


@pytest.mark.parametrize("kind", ["prismatic", "revolute"])
def test_a_locked_joint_stands_where_pinocchio_moves_it(kind):
    text = lifted(kind=kind)
    moving, locked = pin.buildModelFromXML(text), pin.buildModelFromXML(lock_joints(read_urdf(text), {"lift": 0.7}))
    q = np.array([0.7, 0.3, 0.5])
    data, there = moving.createData(), locked.createData()
    pin.framesForwardKinematics(moving, data, q)
    pin.framesForwardKinematics(locked, there, q[1:])
    for name in ("carriage", "lower", "camera"):
        first, second = data.oMf[moving.getFrameId(name)], there.oMf[locked.getFrameId(name)]
        assert first.isApprox(second, 1e-12)


def test_joints_below_the_tool_are_locked_or_refused():
    with pytest.raises(
        ModelError, match=r"lift \(prismatic\): between base and tool, .* new-robot URDF --lock lift=POSITION"
    ):
        load_robot_from_urdf(lifted())
    robot = load_robot_from_urdf(lock_joints(read_urdf(lifted()), {"lift": 0.4}))
    assert robot.joint_names == ("a", "b") and robot.warnings == ()
    for name, position, message in (
        ("hoist", 0.4, "one of lift, a, b"),
        ("lift", 0.0, r"0.1 to 0.9 \[m\]"),
        ("a", 1.0, r"0.1 to 0.9 \[rad\]"),
    ):
        with pytest.raises(ParameterOutOfRange, match=message):
            lock_joints(read_urdf(lifted()), {name: position})
    with pytest.raises(ModelError, match="is planar; only joints with one position"):
        lock_joints(read_urdf(lifted(kind="planar")), {"lift": 0.4})


def test_repair_takes_the_nearest_body_of_the_same_mass_and_center():
    text = lifted(upper=BODY.format(m=2, x=0.5))
    repaired, (sentence,) = repair_inertias(read_urdf(text))
    assert sentence.startswith("inertia of upper repaired: the nearest body differs by 0.")
    before, after = (build_arm_model(read_urdf(one), ["a", "b"]).inertias for one in (text, repaired))
    assert after[1].mass == pytest.approx(before[1].mass) and after[1].lever == pytest.approx(before[1].lever)
    assert after[2].isApprox(before[2], 1e-12), "a possible body stays"
    about_com = (pin.Inertia(one.mass, np.zeros(3), one.inertia) for one in (before[1], after[1]))
    wanted, found = (one.toPseudoInertia().toMatrix()[:3, :3] for one in about_com)
    assert np.linalg.eigvalsh(wanted)[0] < 0.0 < np.linalg.eigvalsh(found)[0]
    rng, distance = np.random.default_rng(3), np.linalg.norm(found - wanted)
    for _ in range(2000):
        factor = np.linalg.cholesky(found) + 0.05 * rng.standard_normal((3, 3)) * rng.uniform()
        assert np.linalg.norm(factor @ factor.T - wanted) > distance - 1e-4
    assert repair_inertias(read_urdf(lifted()))[1] == []
    massless = read_urdf(lifted(upper=BODY.format(m=-2, x=0.02)))
    assert repair_inertias(massless)[1] == [] and massless.problems, "a mass below zero is no matter of shape"


def test_solids_have_the_inertias_of_pinocchio():
    half, rotation, center = np.array([0.1, 0.2, 0.3]), pin.rpy.rpyToMatrix(0.3, -0.7, 1.1), np.array([0.1, -0.2, 0.3])
    for tag, edges, oracle in (
        ("box", half, pin.Inertia.FromBox(1.0, *(2.0 * half))),
        ("cylinder", half[[0, 0, 2]], pin.Inertia.FromCylinder(1.0, half[0], 2.0 * half[2])),
        ("sphere", half[[0, 0, 0]], pin.Inertia.FromSphere(1.0, half[0])),
    ):
        solid = Solid.of(tag, edges, rotation, center)
        turned = pin.SE3(rotation, np.zeros(3)).act(oracle).inertia
        assert solid.inertia == pytest.approx(turned)
    sizes = [Solid.of(tag, np.full(3, 0.5), rotation, center).volume for tag in ("box", "cylinder", "sphere")]
    assert sizes == pytest.approx([1.0, np.pi / 4, np.pi / 6])


def test_every_body_inside_a_region_is_in_its_box():
    rng = np.random.default_rng(5)
    for lower in ([-0.1, -0.2, -0.3], [0.1, -0.2, 0.3], [-0.5, -0.6, -0.7]):
        region = Box(np.array(lower), np.array(lower) + [0.3, 0.4, 0.5])
        box = bodies_inside(Box(np.array([0.5]), np.array([4.5])), region)
        reached = []
        for trial in range(1500):
            mass, count = (rng.uniform(0.5, 4.5), 6) if trial % 2 else (rng.choice([0.5, 4.5]), 1)
            points = rng.uniform(region.lower, region.upper, (count, 3))
            if count == 1:
                points = np.where(rng.integers(0, 3, (1, 3)) == 0, points, rng.choice([region.lower, region.upper]))
            weights = mass * rng.dirichlet(np.ones(count))
            bodies = [pin.Inertia(w, p, np.zeros((3, 3))) for w, p in zip(weights, points, strict=True)]
            reached.append(sum(body.toDynamicParameters() for body in bodies))
            assert np.all((box.lower - 1e-12 <= reached[-1]) & (reached[-1] <= box.upper + 1e-12))
        assert np.all(np.ptp(reached, axis=0) > 0.6 * box.width), "and it is not much larger"


@pytest.mark.parametrize("name", available_robots())
@pytest.mark.parametrize("has_shapes", [True, False])
def test_shipped_arms_are_in_the_ranges_that_follow_without_their_masses(name, has_shapes):
    robot = load_robot(name)
    tree, base = ET.fromstring(robot.urdf), read_urdf(robot.urdf).joint(robot.joint_names[0]).parent
    known, moving = robot.pin_model.inertias, sum(inertia.mass for inertia in list(robot.pin_model.inertias)[1:])
    in_base = 0.25 * moving  # as on data sheets, where the URDF does not say
    for link in tree.findall("link"):
        for inertial in link.findall("inertial"):
            in_base = float(inertial.find("mass").get("value")) if link.get("name") == base else in_base
            link.remove(inertial)
    text = ET.tostring(tree, encoding="unicode")
    solids = solids_of_links(text, {}) if has_shapes else {}
    total = moving + in_base
    proposal = propose_masses(read_urdf(text), robot.joint_names, robot.tool_frame, total, solids)
    for body, joint in enumerate(robot.joint_names, start=1):
        box, truth = proposal.ranges[joint], known[body].toDynamicParameters()
        inside = (box.lower <= truth) & (truth <= box.upper)
        # Of the first body no torque shows more than the moment about its axis; the Panda's are identified.
        assert inside.all() or (name, body) == ("franka_panda", 1), (joint, truth, box)
    described = read_urdf(proposal.text)
    masses = [link.inertial.mass for link in described.robot.links if link.inertial is not None]
    assert described.problems == () and sum(masses) == pytest.approx(total, rel=1e-12)
    for inertia in list(build_arm_model(described, robot.joint_names).inertias)[1:]:
        assert np.linalg.eigvalsh(inertia.toPseudoInertia().toMatrix())[0] > 0.0


def test_a_total_mass_must_leave_something_to_distribute():
    for upper, total, message in (
        ("", 1.0, "more than 1 kg, which the URDF states"),
        ("", float("nan"), "more than 1 kg"),
        (SOUND, 9.0, "none: every body that moves has a mass in the URDF"),
    ):
        with pytest.raises(ParameterOutOfRange, match=message):
            propose_masses(read_urdf(lifted(upper)), ["a", "b"], "camera", total, {})
    proposal = propose_masses(read_urdf(lifted("")), ["a", "b"], "camera", 9.0, {})
    assert list(proposal.ranges) == ["a"] and "of carriage, upper the geometry is assumed, too" in proposal.assumption
