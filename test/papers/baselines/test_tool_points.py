"""Tools: hull, mixture, spheres that cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.papers.baselines.tool_points import reduce_tool

BOX = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T * [0.02, 0.03, 0.15]


@pytest.fixture
def triangles():
    return BOX[ConvexHull(BOX).simplices]


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


def test_spheres_of_a_tool_are_those_of_the_last_body(robot):
    tool = reduce_tool(BOX + [0.0, 0.0, 0.15])
    rotation, origin = tool_transform(robot)
    spheres = tool.spheres(robot, (rotation, origin))
    assert {sphere.body for sphere in spheres} == {robot.n}
    np.testing.assert_allclose(spheres[0].center, rotation @ tool.points[0] + origin)


def test_flat_tools_and_no_components_are_refused():
    with pytest.raises(ModelError, match="8 points span no volume"):
        reduce_tool(BOX * [1, 1, 0])
    with pytest.raises(ParameterOutOfRange, match="1 or more components"):
        reduce_tool(BOX, most=0)
