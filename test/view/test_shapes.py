"""Visual shapes of arms: where their links are, and nothing where a mesh is missing."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("trimesh", reason="the view needs trimesh, which comes with viser")
from sysid_ros.view.scene import visual_shapes


def test_every_link_with_a_shape_is_drawn_at_its_body(robot):
    shapes = visual_shapes(robot)
    assert {shape.body for shape in shapes} == set(range(robot.n + 1))
    base = next(shape for shape in shapes if shape.link == "base_link")
    # <origin xyz="0 0 0.078215"/> <cylinder radius="0.05" length="0.15643"/>
    np.testing.assert_allclose(base.vertices.min(axis=0), [-0.05, -0.05, 0.0], atol=1e-3)
    np.testing.assert_allclose(base.vertices.max(axis=0), [0.05, 0.05, 0.15643], atol=1e-3)
    shoulder = [shape for shape in shapes if shape.link == "shoulder_link"]
    assert len(shoulder) == 2, "a cylinder and a ball"


def test_spheres_of_the_settings_cover_much_of_what_is_drawn(robot):
    """Both describe the same arm: a vertex is seldom farther than some centimetres from the spheres of its body."""
    for shape in visual_shapes(robot):
        spheres = [sphere for sphere in robot.spheres if sphere.body == shape.body]
        distances = [np.linalg.norm(shape.vertices - one.center, axis=1) - one.radius for one in spheres]
        assert np.min(distances, axis=0).max() < 0.06, shape.link


def test_meshes_are_read_with_their_scale_and_missing_ones_are_left_out(robot, tmp_path):
    import trimesh

    trimesh.creation.box([1.0, 2.0, 3.0]).export(tmp_path / "box.stl")
    mesh = '<visual><geometry><mesh filename="{}" scale="0.1 0.1 0.1"/></geometry></visual>'
    text = robot.urdf.replace("</link>", mesh.format("box.stl") + mesh.format("package://no/such.stl") + "</link>", 1)
    before = visual_shapes(robot)
    after = visual_shapes(dataclasses.replace(robot, urdf=text), tmp_path)
    assert len(after) == len(before) + 1
    _, added = [shape for shape in after if shape.link == "base_link"]
    np.testing.assert_allclose(np.ptp(added.vertices, axis=0), [0.1, 0.2, 0.3])


def test_an_arm_without_a_description_has_no_shapes(robot):
    assert visual_shapes(dataclasses.replace(robot, urdf="")) == []
