"""Reading any URDF: without meshes, with rounded angles, and what is refused."""

import math

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError, NotPhysicallyConsistent, ParameterOutOfRange
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
from sysid_ros.core.model.urdf import read_urdf, snap_angle

ARM = """<?xml version="1.0"?>
<robot name="two">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 0.2" rpy="0 0 0"/><mass value="2"/>
      <inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.005"/>
    </inertial>
    <visual><geometry><mesh filename="package://nowhere/upper.stl"/></geometry></visual>
    <collision><geometry><mesh filename="file:///nowhere/upper.dae"/></geometry></collision>
  </link>
  <link name="lower">
    <inertial>
      <origin xyz="0 0 0.15" rpy="0 0 0"/><mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.003"/>
    </inertial>
  </link>
  <link name="tool"/>
  <joint name="shoulder" type="continuous">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 0.3" rpy="1.5708 0 0"/><axis xyz="0 0 1"/>
    <limit velocity="2" effort="50"/><dynamics damping="0.4" friction="0.2"/>
  </joint>
  <joint name="elbow" type="revolute">
    <parent link="upper"/><child link="lower"/><origin xyz="0 0 0.4" rpy="0 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" velocity="3" effort="20"/>
  </joint>
  <joint name="grip" type="fixed">
    <parent link="lower"/><child link="tool"/><origin xyz="0 0 0.3" rpy="0 0 0"/>
  </joint>
  <ros2_control name="x" type="system"><joint name="shoulder"/></ros2_control>
</robot>"""

INERTIA = '<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.003"/>'
FINGER = """<link name="finger"><inertial><mass value="0.1"/>
    <inertia ixx="0.001" ixy="0" ixz="0" iyy="0.001" iyz="0" izz="0.001"/></inertial></link>
  <joint name="finger_joint" type="{type}"><parent link="{parent}"/><child link="finger"/>
    <origin xyz="0 0 0.05"/><axis xyz="1 0 0"/><limit lower="0.1" upper="0.5" velocity="1" effort="5"/>{extra}</joint>
</robot>"""


def with_finger(type="prismatic", parent="tool", extra=""):
    return ARM.replace("</robot>", FINGER.format(type=type, parent=parent, extra=extra))


def test_defaults_come_from_the_urdf():
    robot = load_robot_from_urdf(ARM)
    assert (robot.name, robot.joint_names, robot.tool_frame, robot.base_frame) == (
        "two",
        ("shoulder", "elbow"),
        "tool",
        "base",
    )
    assert robot.limits.q_lower == pytest.approx([-np.inf, -1.0]) and robot.limits.q_upper == pytest.approx(
        [np.inf, 2.0]
    )
    assert robot.limits.v_max == pytest.approx([2.0, 3.0]) and robot.limits.tau_max == pytest.approx([50.0, 20.0])
    assert robot.limits.a_max == pytest.approx([8.0, 12.0])
    assert robot.home == pytest.approx([0.0, 0.5])
    assert robot.gravity == pytest.approx([0.0, 0.0, -9.81])
    assert (robot.pin_model.nq, robot.pin_model.nv) == (2, 2)
    assert any("friction" in sentence for sentence in robot.assumptions)


def test_settings_replace_what_was_derived():
    robot = load_robot_from_urdf(ARM, name="mine", settings={"rated_payload": 1.5, "gravity": [9.81, 0.0, 0.0]})
    assert (robot.name, robot.rated_payload) == ("mine", 1.5)
    assert robot.gravity == pytest.approx([9.81, 0.0, 0.0])
    # The shoulder turns about the world's -y; at zero the arm lies along -y, so gravity along x does not turn it.
    tau = pin.computeGeneralizedGravity(robot.pin_model, robot.pin_model.createData(), np.zeros(2))
    assert tau[0] == pytest.approx(0.0, abs=1e-9) and abs(tau[1]) > 1.0


def test_gravity_is_given_in_the_base_frame():
    """A mount turned by 90 degrees about x in the URDF, with gravity told in the base frame."""
    turned = ARM.replace(
        '<link name="base"/>',
        """<link name="wall"/><link name="base"/>
      <joint name="mount" type="fixed"><parent link="wall"/><child link="base"/>
      <origin xyz="0 0 1" rpy="1.5707963267948966 0 0"/></joint>""",
    )
    straight, mounted = load_robot_from_urdf(ARM), load_robot_from_urdf(turned)
    assert mounted.gravity == pytest.approx([0.0, 0.0, -9.81])
    assert mounted.pin_model.gravity.linear == pytest.approx([0.0, 9.81, 0.0], abs=1e-12)
    q = np.array([0.4, -0.7])
    torques = [pin.computeGeneralizedGravity(r.pin_model, r.pin_model.createData(), q) for r in (straight, mounted)]
    assert torques[0] == pytest.approx(torques[1], abs=1e-12)


def test_fixed_bodies_are_merged():
    text = with_finger("fixed", "tool")
    body = load_robot_from_urdf(text).pin_model.inertias[2].toDynamicParameters()
    lower = from_com_form(1.0, [0, 0, 0.15], np.diag([0.01, 0.01, 0.003]))
    finger = from_com_form(0.1, np.zeros(3), 0.001 * np.eye(3))
    assert body == pytest.approx(lower + transform_parameters(finger, np.eye(3), [0, 0, 0.35]))


def test_other_joints_are_fixed_at_zero_and_told():
    robot = load_robot_from_urdf(with_finger("prismatic"))
    assert robot.joint_names == ("shoulder", "elbow")
    assert robot.warnings[-1] == "joints fixed at zero, not part of the arm: finger_joint"


def test_branches_need_a_name():
    text = with_finger("revolute", "upper")
    with pytest.raises(ModelError, match="branches into elbow, finger_joint; name the joints of the arm"):
        load_robot_from_urdf(text)
    assert load_robot_from_urdf(text, tool_frame="tool").joint_names == ("shoulder", "elbow")
    assert load_robot_from_urdf(text, joint_names=["shoulder", "finger_joint"]).tool_frame == "finger"
    with pytest.raises(ModelError, match="are not one chain.*and elbow is not on it"):
        load_robot_from_urdf(text, joint_names=["shoulder", "elbow", "finger_joint"])


def test_mimic_joints_are_not_the_arms():
    text = with_finger("revolute", "upper", '<mimic joint="elbow"/>')
    assert load_robot_from_urdf(text).joint_names == ("shoulder", "elbow")
    with pytest.raises(ModelError, match="finger_joint': mimics 'elbow'"):
        load_robot_from_urdf(text, joint_names=["shoulder", "finger_joint"])


def test_axes_of_any_length_are_unit_vectors():
    model = load_robot_from_urdf(ARM.replace('axis xyz="0 1 0"', 'axis xyz="0 3 4"')).pin_model
    data = model.createData()
    pin.forwardKinematics(model, data, np.zeros(2), np.array([0.0, 1.0]))
    assert data.v[2].angular == pytest.approx([0.0, 0.6, 0.8])


@pytest.mark.parametrize(
    ("written", "exact"),
    [
        ("1.5708", math.pi / 2),
        ("-1.5708", -math.pi / 2),
        ("3.1416", math.pi),
        ("3.14159", math.pi),
        ("1.571", math.pi / 2),
        ("1.5707", math.pi / 2),
        ("0.7854", math.pi / 4),
        ("-2.0944", -2 * math.pi / 3),
        ("1.5707963", math.pi / 2),
        ("1.57", None),
        ("1.56", None),
        ("1.5710", None),
        ("1.5", None),
        ("0", None),
        ("2.7629e-18", None),
        ("1.5707963267948966", None),
        ("3.14159265358979", None),
        ("0.3217", None),
    ],
)
def test_which_angles_are_roundings(written, exact):
    assert snap_angle(written) == exact


def test_rounded_angles_are_snapped_and_told():
    robot = load_robot_from_urdf(ARM)
    assert robot.warnings == ("joint 'shoulder': rounded angle taken as exact, 1.5708 -> 1.57079632679 rad",)
    assert robot.pin_model.jointPlacements[1].rotation == pytest.approx(
        rotation_from_rpy([math.pi / 2, 0, 0]), abs=1e-15
    )
    assert "1.5707963267948966" in robot.urdf and "package://nowhere" in robot.urdf
    left = load_robot_from_urdf(ARM, snap_angles=False)
    assert left.warnings == () and left.urdf == ARM
    assert left.pin_model.jointPlacements[1].rotation[1, 1] == pytest.approx(math.cos(1.5708), rel=1e-9)
    again = load_robot_from_urdf(robot.urdf)
    assert again.warnings == () and np.array_equal(again.theta_nominal, robot.theta_nominal)


def test_an_inertia_of_no_body_is_refused_only_where_a_joint_feels_it():
    """Bases of public URDFs have placeholders; what never moves counts for nothing."""
    impossible = """<link name="pedestal"><inertial><mass value="5"/>
      <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="9"/></inertial></link>
      <joint name="bolts" type="fixed"><parent link="{parent}"/><child link="pedestal"/></joint></robot>"""
    robot = load_robot_from_urdf(ARM.replace("</robot>", impossible.format(parent="base")))
    np.testing.assert_array_equal(robot.theta_nominal, load_robot_from_urdf(ARM).theta_nominal)
    assert "no body has the inertia of pedestal; it counts for nothing, as nothing moves it" in robot.warnings
    with pytest.raises(NotPhysicallyConsistent, match="pedestal"):
        load_robot_from_urdf(ARM.replace("</robot>", impossible.format(parent="lower")))


def test_bodies_are_judged_as_a_whole():
    """A link that could not exist alone may be part of a body that can, as in public URDFs of grippers."""
    odd = """<link name="hand"><inertial><origin xyz="0 0 0.1"/><mass value="0.5"/>
      <inertia ixx="0.001" ixy="0" ixz="0" iyy="0.001" iyz="0" izz="0.003"/></inertial></link>
      <joint name="bolts" type="fixed"><parent link="tool"/><child link="hand"/>
      <origin xyz="0 0 0.1" rpy="0.3 0 0"/></joint></robot>"""
    robot = load_robot_from_urdf(ARM.replace("</robot>", odd))
    assert any("no body has the inertia of hand alone; everything that moves with it" in one for one in robot.warnings)
    assert robot.pin_model.inertias[2].mass == pytest.approx(1.5)
    with pytest.raises(NotPhysicallyConsistent, match="inertia of 'hand' is not"):
        load_robot_from_urdf(ARM.replace("</robot>", odd.replace('izz="0.003"', 'izz="0.9"')))


@pytest.mark.parametrize(("factor", "size"), [(1e9, "3.2 km"), (1e4, "10 m"), (300.0, "1.7 m")])
def test_inertias_of_another_unit_are_asked_about(factor, size):
    grams = ARM.replace(INERTIA, INERTIA.replace("0.01", str(0.01 * factor)).replace("0.003", str(0.003 * factor)))
    question = f"link 'lower' of 1 kg would have a radius of gyration of {size}: units?"
    if factor < 1e3:
        assert any(question in warning for warning in load_robot_from_urdf(grams).warnings)
        return
    with pytest.raises(ModelError, match=question):
        load_robot_from_urdf(grams)


def test_all_problems_are_listed_at_once():
    text = ARM.replace('<mass value="1"/>', '<mass value="-1"/>').replace('effort="50"', 'effort="0"')
    text = text.replace('upper="2" velocity="3"', 'upper="-2" velocity="3"').replace("0.005", "5e6")
    with pytest.raises(ModelError) as caught:
        load_robot_from_urdf(text)
    for part in ("5 problems", "'upper' of 2 kg", "'lower' is not", "'elbow' has no pos", "'shoulder' has no effort"):
        assert part in str(caught.value)
    numbers = ARM.replace('xyz="0 0 0.15"', 'xyz="0 0"').replace('mass value="2"', 'mass value="two"')
    with pytest.raises(ModelError, match=r"(?s)2 problems.*link 'upper'.*must be a finite number.*link 'lower'.*three"):
        read_urdf(numbers)


def test_a_joint_that_fingers_copy_is_no_joint_of_the_arm():
    """A gripper of two fingers, of which one drives the other, behind four joints."""
    links, names = ["base", "a", "b", "c", "d", "left", "right"], ["j1", "j2", "j3", "j4", "left_joint", "right_joint"]
    parents = ["base", "a", "b", "c", "d", "d"]
    body = """<inertial><origin xyz="0 0 0.1"/><mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.003"/></inertial>"""
    text = '<robot name="r">' + "".join(f'<link name="{link}">{body}</link>' for link in links)
    for name, parent, child in zip(names, parents, links[1:], strict=True):
        mimic = '<mimic joint="left_joint" multiplier="-1"/>' if name == "right_joint" else ""
        text += f"""<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/>
          <origin xyz="0 0 0.2"/><axis xyz="0 1 0"/><limit lower="-1" upper="1" velocity="2" effort="9"/>{mimic}
          </joint>"""
    robot = load_robot_from_urdf(text + "</robot>")
    assert robot.joint_names == ("j1", "j2", "j3", "j4")
    assert robot.pin_model.inertias[4].mass == pytest.approx(3.0), "both fingers are folded into the last body"


def test_a_frame_with_a_placeholder_for_its_inertia_counts_as_a_frame():
    """A public Panda has frames of 0 kg with 0.1 kg m^2."""
    frame = """<link name="grasp"><inertial><mass value="0.0"/>
      <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
      <joint name="weld" type="fixed"><parent link="lower"/><child link="grasp"/></joint></robot>"""
    robot = load_robot_from_urdf(ARM.replace("</robot>", frame))
    np.testing.assert_array_equal(robot.theta_nominal, load_robot_from_urdf(ARM).theta_nominal)
    assert "an inertia without a mass belongs to no body and is ignored: grasp" in robot.warnings


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<mass value="1"/>', '<mass value="0"/>', "nothing that has mass: give its links <inertial>"),
        ('<mass value="1"/>', '<mass value="nan"/>', "link 'lower': value=\"nan\" in <mass> must be a fin"),
        ('<mass value="1"/>', "", "mass|<inertial>"),
        ('axis xyz="0 1 0"', 'axis xyz="0 0 0"', "joint 'elbow': has a zero axis"),
        ('axis xyz="0 1 0"', 'axis xyz="0 inf 0"', "joint 'elbow': xyz=\"0 inf 0\""),
        ('velocity="3"', 'velocity="0"', r"joint 'elbow' has no velocity \[rad/s\] limit"),
        ('<limit velocity="2" effort="50"/>', "", "joint 'shoulder' has no velocity"),
        ('velocity="3"', "", "velocity"),
        ('type="revolute"', 'type="prismatic"', "joint 'elbow': is prismatic; joints of the arm must be"),
        ('type="revolute"', 'type="screw"', "joint 'elbow': has the unknown type 'screw'"),
        ('<link name="tool"/>', '<link name="tool"/><link name="lost"/>', r"several roots \(base, lost\)"),
        ('<link name="tool"/>', "", "joint 'grip': has the child link 'tool', which does not exist"),
        ('<link name="tool"/>', '<link name="tool"/><link name="tool"/>', "'tool': is defined twice"),
        ('<child link="tool"/>', '<child link="upper"/>', "closes a loop: link 'upper' already has the par"),
        ('<parent link="base"/>', '<parent link="tool"/>', r"several roots|loop"),
        ('<link name="tool"/>', "<link/>", "a <link>: has no name"),
        ('rpy="1.5708 0 0"', 'rpy="${pi/2} 0 0"', "contains xacro macros; expand it first"),
        ("</robot>", "", "is not XML"),
    ],
)
def test_bad_urdfs_are_refused_by_name(old, new, message):
    assert old in ARM
    # With the joints named, a prismatic elbow is not simply left out of the arm.
    with pytest.raises(ModelError, match=message):
        load_robot_from_urdf(ARM.replace(old, new), joint_names=["shoulder", "elbow"])


def test_the_namespace_of_macros_that_were_expanded_is_no_macro():
    load_robot_from_urdf(ARM.replace('name="two"', 'name="two" xmlns:xacro="http://x"'))


def test_a_body_that_cannot_be_has_an_error_of_its_own():
    with pytest.raises(NotPhysicallyConsistent, match="inertia of 'lower' is not physically"):
        load_robot_from_urdf(ARM.replace(INERTIA, INERTIA.replace("0.003", "0.03")))


def test_loops_of_joints():
    loop = """<robot name="r"><link name="root"/><link name="a"/><link name="b"/>
    <joint name="ab" type="fixed"><parent link="a"/><child link="b"/></joint>
    <joint name="ba" type="fixed"><parent link="b"/><child link="a"/></joint></robot>"""
    with pytest.raises(ModelError, match="link 'a': is part of a loop of joints"):
        read_urdf(loop)
    with pytest.raises(ModelError, match="form a loop: none is without a parent joint"):
        read_urdf(loop.replace('<link name="root"/>', ""))
    with pytest.raises(ModelError, match="starts with <sdf>"):
        read_urdf("<sdf/>")


def test_unknown_names():
    with pytest.raises(ParameterOutOfRange, match="invalid joint 'wrist': expected one of shoulder, elbow"):
        load_robot_from_urdf(ARM, joint_names=["shoulder", "wrist"])
    with pytest.raises(ModelError, match="link 'hand': does not exist; links are base, upper"):
        load_robot_from_urdf(ARM, tool_frame="hand")
    with pytest.raises(
        ModelError, match="frame 'upper' is not a link fixed to the last body; links there are lower, tool"
    ):
        load_robot_from_urdf(ARM, joint_names=["shoulder", "elbow"], tool_frame="upper")
    with pytest.raises(ModelError, match="has no revolute or continuous joint"):
        load_robot_from_urdf('<robot name="r"><link name="a"/></robot>')


def test_a_robot_description_replaces_the_shipped_urdf():
    """Other text, same joints: rounded angles and meshes as vendors publish them."""
    robot = load_robot("kinova_gen3")
    vendor = robot.urdf.replace("1.5707963267948966", "1.5708").replace("3.141592653589793", "3.1416")
    vendor = vendor.replace(
        '<cylinder radius="0.05" length="0.15643"/>', '<mesh filename="package://kortex/base.dae"/>'
    )
    loaded = load_robot("kinova_gen3", vendor)
    assert loaded.warnings and np.array_equal(loaded.theta_nominal, robot.theta_nominal)
    assert "package://kortex" in loaded.urdf
    with pytest.raises(ParameterOutOfRange, match="invalid joint 'joint_1': expected one of shoulder, elbow"):
        load_robot("kinova_gen3", ARM)
