"""Any arm: friction that nobody knows, tags nobody knows, settings files that are written, spheres over meshes."""

import numpy as np
import pinocchio as pin
import pytest
import yaml

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
from sysid_ros.core.model.mesh_spheres import cover_meshes, find_mesh
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.core.model.settings_text import SettingsNotes, settings_text
from sysid_ros.core.model.urdf import read_urdf

INERTIAL = """<inertial><origin xyz="0 0 {z}"/><mass value="{mass}"/>
<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.003"/></inertial>"""
ARM = """<robot name="two"><link name="base"/>
<link name="upper">{first}{shape}</link><link name="lower">{second}</link><link name="hand"/>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
  <limit lower="-2" upper="2" velocity="2" effort="50"/>{tags}</joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.3"/>
  <axis xyz="0 1 0"/><limit lower="-2" upper="2" velocity="3" effort="20"/></joint>
<joint name="grip" type="fixed"><parent link="lower"/><child link="hand"/><origin xyz="0 0 0.25"/></joint>
</robot>"""


def arm(shape="", tags=""):
    return ARM.format(
        first=INERTIAL.format(z=0.15, mass=2.0), second=INERTIAL.format(z=0.12, mass=1.0), shape=shape, tags=tags
    )


def test_friction_that_nobody_knows_is_wide_and_never_zero():
    robot = load_robot_from_urdf(arm())
    lower, upper = robot.friction(robot.theta_box.lower), robot.friction(robot.theta_box.upper)
    assert lower[:, :3] == pytest.approx(np.zeros((2, 3))) and np.all(upper > 0.0) and np.all(lower[:, 3] < 0.0)
    assert upper[0] == pytest.approx([5.0, 2.5, 50.0 / 16.0, 1.0], rel=1e-3)
    tagged = load_robot_from_urdf(arm(tags='<dynamics damping="10" friction="0.3"/>'))
    above = tagged.friction(tagged.theta_box.upper)
    assert above[0] == pytest.approx([5.0, 20.0, 50.0 / 16.0, 1.0], rel=1e-3), "tags only widen"
    assert any("friction is unknown" in sentence for sentence in robot.assumptions)


def test_products_of_inertia_left_at_zero_are_not_known_to_be_zero():
    robot = load_robot_from_urdf(arm())
    part = robot.inertial_slice(2)
    assert np.all(robot.theta_box.radius[part] > 0.0)
    assert robot.theta_box.radius[part][1] == pytest.approx(0.01), "1 kg with a CoM known within 10 mm"


def test_a_link_and_a_joint_may_have_one_name():
    text = arm().replace('name="grip"', 'name="hand"').replace('name="elbow"', 'name="lower"')
    robot = load_robot_from_urdf(text)
    assert robot.joint_names == ("shoulder", "lower") and robot.tool_frame == "hand"
    model = robot.pin_model
    assert [model.frames[model.getFrameId(name)].type for name in ("hand", "lower")] == [pin.FrameType.BODY] * 2
    assert tool_transform(robot)[1] == pytest.approx([0.0, 0.0, 0.25])


def test_unknown_tags_are_one_sentence(capsys):
    text = arm(tags='<dynamics damping="1" friction="1" spring="4" colour="red"/>')
    description = read_urdf(text)
    (sentence,) = description.warnings
    assert sentence.startswith(
        "2 tags or attributes of the URDF are unknown and were passed over; first: Unknown attribute"
    )
    assert description.text == text and load_robot_from_urdf(text).warnings == (sentence,)
    assert capsys.readouterr().err == ""


def test_a_bare_urdf_is_a_model(tmp_path):
    path = tmp_path / "mine.urdf"
    path.write_text(arm())
    robot = load_robot(path)
    assert (robot.name, robot.joint_names, robot.tool_frame) == ("mine", ("shoulder", "elbow"), "hand")
    with pytest.raises(ParameterOutOfRange, match="mine.urdf does not say how elastic"):
        load_robot(path, is_elastic=True)
    with pytest.raises(ModelError, match="cannot read the URDF .*nowhere.urdf"):
        load_robot(tmp_path / "nowhere.urdf")


def test_written_settings_load_as_the_same_arm(tmp_path):
    from sysid_ros.core.model.defaults import default_settings

    (tmp_path / "two.urdf").write_text(arm())
    settings = default_settings(read_urdf(arm()))
    settings["sensors"]["stamp_jitter"] = 1e-5
    notes = SettingsNotes("two", "two.urdf", "two.urdf", {"sensors": ["seen in a bag"]})
    text = settings_text(settings, notes)
    (tmp_path / "two.yaml").write_text(text)
    assert yaml.safe_load(text)["sensors"]["stamp_jitter"] == 1e-5, "YAML 1.1 must read it as a number"
    written, derived = load_robot(tmp_path / "two.yaml"), load_robot_from_urdf(arm(), settings=settings)
    assert np.array_equal(written.theta_box.lower, derived.theta_box.lower)
    assert np.array_equal(written.theta_box.upper, derived.theta_box.upper)
    assert written.sensors.effort_absolute_error == pytest.approx([0.25, 0.1])
    sections = ("frames", "joints", "friction", "inertial_uncertainty", "sensors", "payload_priors", "assumptions")
    lines = text.splitlines()
    for section in sections:
        place = next(k for k, line in enumerate(lines) if line.startswith(f"{section}:"))
        assert lines[place - 1].startswith("#"), section
    assert "# seen in a bag" in text


def test_where_meshes_are_looked_for(tmp_path, monkeypatch):
    package, prefix = tmp_path / "arm_description", tmp_path / "prefix"
    for path in (package / "meshes" / "a.stl", package / "urdf" / "b.stl", prefix / "share" / "other" / "c.stl"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    urdf = package / "urdf" / "arm.urdf"
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(prefix))
    assert find_mesh("package://arm_description/meshes/a.stl", urdf) == package / "meshes" / "a.stl"
    assert find_mesh("b.stl", urdf) == package / "urdf" / "b.stl"
    assert find_mesh("package://other/c.stl", urdf) == prefix / "share" / "other" / "c.stl"
    assert find_mesh(f"file://{package}/urdf/b.stl", urdf) == package / "urdf" / "b.stl"
    assert find_mesh("package://arm_description/d.stl", urdf) is None and find_mesh("http://x/a.stl", urdf) is None


def test_spheres_cover_a_mesh(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    mesh = trimesh.creation.capsule(height=0.2, radius=0.04)
    mesh.apply_transform(trimesh.transformations.rotation_matrix(0.7, [1.0, 0.3, 0.2], [0.01, 0.0, 0.0]))
    mesh.export(tmp_path / "link.stl")
    shape = (
        '<collision><origin xyz="0 0 0.15" rpy="0.2 0 0.3"/><geometry><mesh filename="link.stl" scale="1 1 1.2"/>'
        "</geometry></collision>"
    )
    found = cover_meshes(arm(shape), tmp_path / "two.urdf")
    assert found.problems == {} and list(found.spheres) == ["upper"]
    from sysid_ros.core.common.spatial import rotation_from_rpy

    points = trimesh.sample.sample_surface(mesh, 4000, seed=1)[0] * [1.0, 1.0, 1.2]
    points = points @ rotation_from_rpy([0.2, 0.0, 0.3]).T + [0.0, 0.0, 0.15]
    rows = np.array(found.spheres["upper"])
    away = np.linalg.norm(points[:, None] - rows[:, :3], axis=2) - rows[:, 3]
    assert away.min(axis=1).max() <= 0.0, "every point lies in a sphere"
    assert rows[:, 3].max() < 0.15 and len(rows) < 12, "and not in a huge one"
    missing = cover_meshes(arm(shape.replace("link.stl", "package://nowhere/link.stl")), tmp_path / "two.urdf")
    assert missing.spheres == {} and "was not found" in missing.problems["upper"]
    (tmp_path / "link.stl").write_text("solid nothing\nendsolid\n")
    damaged = cover_meshes(arm(shape), tmp_path / "two.urdf")
    assert damaged.spheres == {} and "cannot be read" in damaged.problems["upper"]


def test_without_trimesh_it_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "trimesh", None)
    shape = '<collision><geometry><mesh filename="link.stl"/></geometry></collision>'
    found = cover_meshes(arm(shape), tmp_path / "two.urdf")
    assert found.spheres == {} and "pip install trimesh" in found.problems["upper"]
