"""Descriptions of mechanisms: from Pinocchio, from URDF, rotors from YAML, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError, NotPhysicallyConsistent, ParameterOutOfRange
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree import Mimic, Rotor, TreeBody, build_tree, prismatic, revolute
from sysid_ros.core.identifiability.tree_readers import read_rotors, tree_from_model, tree_from_urdf
from sysid_ros.core.model.urdf import read_urdf

SE3 = pin.SE3.Identity()
INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name):
    return f'<link name="{name}">{INERTIAL}</link>'


def joint(name, parent, child, kind="revolute", extra='<axis xyz="0 0 1"/>', origin="0.3 0 0"):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{origin}"/>{extra}</joint>'
    )


def urdf(*parts):
    return f'<robot name="test"><link name="base"/>{"".join(parts)}</robot>'


TWO = urdf(link("a"), link("b"), joint("j1", "base", "a"), joint("j2", "a", "b"))


def body(**changes):
    return replace(TreeBody("j1", -1, np.eye(3), np.zeros(3), revolute([0, 0, 1])), **changes)


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ([], "no bodies that move"),
        ([body(), body(parent=0)], "exists twice"),
        ([body(parent=0)], "is body 0 with parent 0; parents come first (a loop"),
        ([body(), body(name="j2", parent=3)], "is body 1 with parent 3"),
        ([body(translation=np.array([np.nan, 0, 0]))], "translation: must be finite numbers"),
        ([body(rotation=np.full((3, 3), np.inf))], "rotation: must be finite numbers"),
        ([body(rotation=np.diag([1.0, 1.0, -1.0]))], "has a placement that is no rotation"),
        ([body(motion=np.zeros((6, 1)))], "has a zero axis"),
        ([body(motion=np.ones((6, 2)))], "axes that depend on each other"),
        ([body(rotor=Rotor(0.0, (0, 0, 1)))], "gear ratio 0.0; it must not be zero"),
        ([body(rotor=Rotor(10.0, (0, 0, 0)))], "axis: is zero"),
        ([body(rotor=Rotor(10.0, (0, 0, 1), parameters="some"))], "allowed are axial, symmetric, full"),
        ([body(motion=np.eye(6)[:, 3:], rotor=Rotor(10.0, (0, 0, 1)))], "a rotor needs exactly one"),
    ],
)
def test_what_cannot_be_analysed_is_refused(bodies, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        build_tree("bad", bodies)


def test_zero_axes_and_wrong_gravity_are_refused():
    for make in (revolute, prismatic):
        with pytest.raises(ModelError, match="is zero"):
            make([0.0, 0.0, 0.0])
    with pytest.raises(ModelError, match="gravity"):
        build_tree("bad", [body()], [0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (urdf(link("a"), link("b"), joint("j1", "base", "a"), joint("j2", "a", "b"), joint("j3", "base", "b")), "loop"),
        (urdf(link("a"), joint("j1", "base", "a", extra='<axis xyz="0 0 0"/>')), "zero axis"),
        (urdf(link("a"), joint("j1", "base", "a", origin="0 nan 0")), "finite"),
        (urdf(link("a"), joint("j1", "base", "a", kind="ball")), "unknown type 'ball'"),
        ("<robot", "XML"),
    ],
)
def test_bad_urdfs_are_refused(text, message):
    with pytest.raises(ModelError, match=message):
        tree_from_urdf(text)


MIMIC = urdf(
    link("a"),
    link("b"),
    link("c"),
    joint("j1", "base", "a"),
    joint("j2", "a", "b", extra='<axis xyz="0 0 1"/><mimic joint="j1" multiplier="-2" offset="0.1"/>'),
    joint("j3", "b", "c", extra='<axis xyz="0 0 1"/><mimic joint="j2" multiplier="0.5"/>'),
)


def test_mimic_joints_follow_in_the_end_what_moves_by_itself():
    tree = tree_from_urdf(MIMIC)
    assert tree.followers == ("j2", "j3")
    assert tree.bodies[1].follows == Mimic("j1", -2.0, 0.1)
    assert tree.bodies[2].follows == Mimic("j1", -1.0, 0.05)
    # A single torque: fewer base parameters than of three, and no friction of its own for what follows.
    structure = analyze_structure(tree, AnalysisSettings(joint_parameters=("F_c", "I_a")))
    assert {name for name in structure.names if name.endswith(("F_c", "I_a"))} == {"j1.F_c", "j1.I_a"}
    assert analyze_structure(tree).count < analyze_structure(tree_from_urdf(TWO)).count + 3
    assert [found.links for found in tree_from_urdf(MIMIC, locked=["j2", "j3"]).bodies] == [("a", "b", "c")]


def test_mimic_joints_that_cannot_follow():
    with pytest.raises(match="'j2'.*mimics 'j1', which is locked; lock it, too"):
        tree_from_urdf(MIMIC, locked=["j1"])
    with pytest.raises(match="follows itself, by way of"):
        tree_from_urdf(MIMIC.replace('<mimic joint="j1"', '<mimic joint="j3"'))
    with pytest.raises(match="follows 'j1'; both need one degree of freedom"):
        tree_from_urdf(MIMIC.replace('name="j1" type="revolute"', 'name="j1" type="planar"'))
    with pytest.raises(ParameterOutOfRange, match="j1, j2"):
        tree_from_urdf(MIMIC, locked=["j9"])
    with pytest.raises(match="no joint of it moves"):
        tree_from_urdf(MIMIC, locked=["j1", "j2", "j3"])


def test_inertias_are_not_looked_at():
    """Public URDFs hold inertias that no body can have; identifiability depends on none."""
    impossible = TWO.replace('ixx="1" iyy="1"', 'ixx="9" iyy="-1"').replace('mass value="1"', 'mass value="1e-9"')
    assert analyze_structure(tree_from_urdf(impossible)).base_names == analyze_structure(tree_from_urdf(TWO)).base_names
    assert any(isinstance(problem, NotPhysicallyConsistent) for problem in read_urdf(impossible).problems)


def test_a_urdf_and_the_same_pinocchio_model_give_the_same_tree():
    tree = tree_from_urdf(TWO, is_floating=True)
    assert [found.kind for found in tree.bodies] == ["floating", "revolute", "revolute"]
    assert tree.is_floating and [found.parent for found in tree.bodies] == [-1, 0, 1]
    fixed = tree_from_urdf(TWO)
    assert analyze_structure(fixed).count == 4 and fixed.length == pytest.approx(0.3)


def test_all_joint_types_of_urdf_and_several_arms():
    text = urdf(
        *(link(name) for name in "abcde"),
        joint("slide", "base", "a", kind="prismatic"),
        joint("turn", "base", "b", kind="continuous"),
        joint("cart", "b", "c", kind="planar"),
        joint("stiff", "c", "d", kind="fixed"),
        joint("free", "base", "e", kind="floating", extra=""),
    )
    bodies = {found.name: found for found in tree_from_urdf(text).bodies}
    assert {name: found.kind for name, found in bodies.items()} == {
        "slide": "prismatic",
        "turn": "revolute",
        "cart": "3 degrees of freedom",
        "free": "floating",
    }
    assert bodies["cart"].links == ("c", "d")
    assert [bodies[name].parent for name in ("slide", "turn", "free")] == [-1, -1, -1]


def test_the_size_of_a_robot_does_not_matter():
    """The tolerance is relative to the length of its links."""
    tree = tree_from_urdf(TWO)
    for factor in (1e-4, 1e4):
        bodies = [replace(found, translation=factor * found.translation) for found in tree.bodies]
        scaled = analyze_structure(build_tree("scaled", bodies, tree.gravity))
        assert scaled.base_names == analyze_structure(tree).base_names
        # m_2 l^2 in I_zz of the first link
        assert scaled.matrix[0, scaled.names.index("j2.m")] == pytest.approx(0.09 * factor**2)


def test_universal_and_composite_joints_are_chains():
    composite = pin.JointModelComposite()
    composite.addJoint(pin.JointModelRX())
    composite.addJoint(pin.JointModelRY())
    counts = []
    for kind in (pin.JointModelUniversal(np.eye(3)[0], np.eye(3)[1]), composite):
        model = pin.Model()
        model.appendBodyToJoint(model.addJoint(0, kind, SE3, "u"), pin.Inertia.Random(), SE3)
        tree = tree_from_model(model)
        assert [(found.name, found.has_inertia) for found in tree.bodies] == [("u#1", False), ("u", True)]
        counts.append(analyze_structure(tree).count)
    assert counts[0] == counts[1]


def test_joints_that_follow_others_are_refused_in_pinocchio_models():
    text = urdf(
        link("a"),
        link("b"),
        joint("j1", "base", "a", kind="continuous"),
        joint("j2", "a", "b", kind="continuous", extra='<axis xyz="0 0 1"/><mimic joint="j1"/>'),
    )
    with pytest.raises(ModelError, match="'j2'.*mimic"):
        tree_from_model(pin.buildModelFromXML(text, mimic=True))


def test_masses_that_are_not_finite_are_refused():
    model = pin.Model()
    model.appendBodyToJoint(model.addJoint(0, pin.JointModelRZ(), SE3, "j"), pin.Inertia.Random(), SE3)
    model.inertias[1] = pin.Inertia(float("nan"), np.zeros(3), np.eye(3))
    with pytest.raises(ModelError, match="masses"):
        tree_from_model(model)


def test_rotors_from_yaml():
    tree = tree_from_urdf(TWO)
    rotors = read_rotors("rotors: {j2: {gear_ratio: 100, axis: [0, 1, 0], origin: [0, 0, 0.1]}}", tree)
    assert rotors["j2"].gear_ratio == 100.0
    with_rotor = tree.with_rotors(rotors)
    assert with_rotor.bodies[1].rotor.parameters == "axial" and with_rotor.bodies[0].rotor is None
    assert np.allclose(read_rotors("rotors: {j1: {gear_ratio: -5}}", tree)["j1"].axis, [0, 0, 1])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("rotors: [", ModelError, "cannot read rotors: "),
        ("motors: {}", ParameterOutOfRange, "rotors:"),
        ("rotors: {j9: {gear_ratio: 1}}", ParameterOutOfRange, "expected one of j1, j2"),
        ("rotors: {j1: {ratio: 1}}", ParameterOutOfRange, "rotors.j1 .* gear_ratio"),
        ("rotors: {j1: {gear_ratio: .nan}}", ParameterOutOfRange, "gear_ratio .* finite"),
        ("rotors: {j1: {gear_ratio: 1, axis: [1, 2]}}", ParameterOutOfRange, "axis .* 3 finite"),
    ],
)
def test_bad_rotors_are_refused(text, error, message):
    with pytest.raises(error, match=message):
        read_rotors(text, tree_from_urdf(TWO))


def test_unknown_rotors_joints_and_settings_are_refused():
    tree = tree_from_urdf(TWO)
    with pytest.raises(ModelError, match="no such joint; joints are j1, j2"):
        tree.with_rotors({"j9": Rotor(1.0, (0, 0, 1))})
    with pytest.raises(ModelError, match="known body 'j9'"):
        analyze_structure(tree, AnalysisSettings(known=("j9",)))
    for wrong in ({"measured": "all"}, {"motion": "slow"}, {"joint_parameters": ("F",)}, {"tolerance": 0.0}):
        with pytest.raises(ParameterOutOfRange):
            AnalysisSettings(**wrong)
    with pytest.raises(ParameterOutOfRange, match="massless"):
        tree_from_urdf(TWO, massless="light")
