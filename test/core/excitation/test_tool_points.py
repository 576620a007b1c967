"""Tools from meshes and URDFs: hull, mixture, spheres that cover, ellipsoids that enclose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.tool_points import (
    InvalidTool,
    LinkEllipsoid,
    read_mesh_points,
    read_urdf_points,
    reduce_tool,
)
from sysid_ros.core.model.robot import Sphere, tool_transform

BOX = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T * [0.02, 0.03, 0.15]
URDF = """<robot name="tool"><link name="rod"><collision><origin xyz="0 0 0.1" rpy="0 1.5707963267948966 0"/>
<geometry><cylinder radius="0.006" length="0.3"/></geometry></collision>
<collision><geometry><sphere radius="0.03"/></geometry></collision></link>
<link name="bare"/><link name="odd"><visual><geometry><capsule radius="1"/></geometry></visual></link>
<link name="mesh"><visual><geometry><mesh filename="package://rod.stl" scale="0.001 0.001 0.001"/></geometry></visual>
</link></robot>"""


def binary_stl(triangles):
    rows = np.zeros(len(triangles), dtype=[("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("colour", "<u2")])
    rows["points"] = triangles
    return b"solid or not" + b" " * 68 + len(triangles).to_bytes(4, "little") + rows.tobytes()


@pytest.fixture
def triangles():
    return BOX[ConvexHull(BOX).simplices]


def test_meshes_of_all_kinds_have_the_same_points(tmp_path, triangles):
    (tmp_path / "rod.stl").write_bytes(binary_stl(1000 * triangles))
    corners = triangles.reshape(-1, 3)
    lines = "\n".join(f"vertex {x} {y} {z}" for x, y, z in corners)
    (tmp_path / "text.STL").write_text(f"solid rod\n{lines}\nendsolid")
    (tmp_path / "rod.obj").write_text("# rod\n" + "\n".join(f"v {x} {y} {z}" for x, y, z in corners) + "\nf 1 2 3")
    for found in (
        read_mesh_points(tmp_path / "rod.stl", scale=0.001),
        read_mesh_points(tmp_path / "text.STL"),
        read_mesh_points(tmp_path / "rod.obj"),
        read_urdf_points(URDF, "mesh", tmp_path),
    ):
        np.testing.assert_allclose(found, corners, atol=1e-8)


def test_shapes_of_a_urdf_lie_inside_the_hull_of_their_points():
    points = read_urdf_points(URDF, "rod")
    hull = ConvexHull(points)
    rng = np.random.default_rng(0)
    along, angle = rng.uniform(-0.15, 0.15, 500), rng.uniform(0, 2 * np.pi, 500)
    cylinder = np.column_stack([along, 0.006 * np.cos(angle), 0.1 + 0.006 * np.sin(angle)])
    sphere = rng.normal(size=(500, 3))
    sphere *= 0.03 / np.linalg.norm(sphere, axis=1, keepdims=True)
    for inside in (cylinder, sphere):
        assert (hull.equations[:, :3] @ inside.T + hull.equations[:, 3:]).max() < 1e-12
    assert np.ptp(points, axis=0)[0] == pytest.approx(0.3)


def test_the_spheres_cover_the_surface_of_the_hull(triangles):
    tool = reduce_tool(BOX)
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(3), size=(len(triangles), 400))
    surface = np.einsum("tsk,tkc->tsc", weights, triangles).reshape(-1, 3)
    beyond = np.linalg.norm(surface[:, None] - tool.points, axis=-1) - tool.radii
    assert beyond.min(axis=1).max() <= 0.0
    assert 2 <= len(tool.points) <= 12
    assert tool.radii.max() < 0.1  # one sphere alone would need 0.154 m


def test_more_components_are_taken_only_where_they_explain_more():
    rng = np.random.default_rng(2)
    clouds = [center + 0.01 * rng.normal(size=(80, 3)) for center in ([0, 0, 0], [0.3, 0, 0], [0, 0.3, 0.1])]
    assert 3 <= len(reduce_tool(np.concatenate(clouds), most=6).points) <= 6
    assert len(reduce_tool(np.concatenate(clouds), most=1).points) == 1


def test_spheres_of_a_tool_are_those_of_the_last_body(gen3):
    tool = reduce_tool(BOX + [0.0, 0.0, 0.15])
    rotation, origin = tool_transform(gen3)
    spheres = tool.spheres(gen3, (rotation, origin))
    assert {sphere.body for sphere in spheres} == {gen3.n}
    np.testing.assert_allclose(spheres[0].center, rotation @ tool.points[0] + origin)


def test_ellipsoids_enclose_their_spheres_and_what_is_near():
    spheres = [Sphere(2, np.array([0.0, 0.05, 0.1 * k]), 0.06 + 0.01 * k, "link") for k in range(3)]
    ellipsoid = LinkEllipsoid.around(spheres)
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(5000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for one in spheres:
        offset = one.center + one.radius * directions - ellipsoid.center
        assert np.einsum("pi,ij,pj->p", offset, ellipsoid.matrix, offset).max() <= 1.0
    larger = ellipsoid.enlarged(0.04)
    surface = ellipsoid.half_axes * directions
    near = surface + 0.04 * directions[::-1]
    assert np.einsum("pi,ij,pj->p", near, larger.matrix, near).max() <= 1.0
    assert ellipsoid.enlarged(0.0) is ellipsoid
    assert larger.half_axes.max() < ellipsoid.half_axes.max() + 2 * 0.04


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("nothing", "tool 'nothing': the URDF has no such link; it has rod, bare, odd, mesh"),
        ("bare", "tool 'bare': has no shapes"),
        ("odd", "a shape is 'capsule'; allowed are sphere, cylinder, box and mesh"),
        ("mesh", "cannot be read"),
    ],
)
def test_links_without_usable_shapes_are_refused(tmp_path, link, message):
    with pytest.raises(InvalidTool, match=message):
        read_urdf_points(URDF, link, tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rod.dae", b"", "'.dae' is not a known kind of mesh; use .stl or .obj"),
        ("cut.stl", binary_stl(np.zeros((4, 3, 3)))[:-10], "holds no vertices"),
        ("empty.obj", b"# nothing", "holds no vertices"),
        ("bad.obj", b"v 1 two 3", "a vertex is not three numbers"),
        ("short.obj", b"v 1 2", "holds no vertices"),
        ("nan.obj", b"v 1 2 nan\nv 1 2 3", "not finite"),
    ],
)
def test_meshes_that_cannot_be_used_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidTool, match=message):
        read_mesh_points(path)


def test_flat_tools_and_no_components_are_refused():
    with pytest.raises(InvalidTool, match="8 points span no volume"):
        reduce_tool(BOX * [1, 1, 0])
    with pytest.raises(ParameterOutOfRange, match="1 or more components"):
        reduce_tool(BOX, most=0)
