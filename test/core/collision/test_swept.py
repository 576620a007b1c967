"""The picture of the room a plan takes, against kinematics posture by posture."""

import numpy as np
import pytest

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.collision.swept import sweep_spheres
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.trajectories.families import BezierTrajectory

ERROR = np.radians([0.5, 0.4, 0.6, 0.5, 1.0, 1.0, 1.0])


@pytest.fixture(scope="module")
def trajectory(robot):
    zero = np.zeros(robot.n)
    goal = robot.home + np.array([0.5, 0.4, -0.3, 0.5, 0.2, -0.4, 0.6])
    return BezierTrajectory(robot.home, zero, zero, goal, 3.0)


def centers_of(robot, spheres, q):
    rotations, origins = BodyPoses(robot).compute(q)
    return np.array([origins[s.body] + rotations[s.body] @ s.center for s in spheres])


def test_spheres_are_where_the_arm_comes_by_and_cover_its_errors(robot, trajectory):
    swept = sweep_spheres(robot, trajectory, Scene(), ERROR, postures=9)
    assert swept.times[0] == 0.0 and swept.times[-1] == pytest.approx(3.0) and len(swept.times) == 9
    links = [sphere.link for sphere in swept.spheres]
    assert links.count("payload") == len(robot.payload_prior.spheres) and all(s.body >= 1 for s in swept.spheres)
    rng = np.random.default_rng(0)
    radii = np.array([sphere.radius for sphere in swept.spheres])
    reached = np.zeros(len(radii))
    for time, centers in zip(swept.times, swept.centers, strict=True):
        q = trajectory.evaluate(time)[0]
        np.testing.assert_allclose(centers, centers_of(robot, swept.spheres, q), atol=1e-9)
        for _ in range(30):
            moved = centers_of(robot, swept.spheres, q + ERROR * rng.choice([-1.0, 1.0], robot.n))
            reached = np.maximum(reached, np.linalg.norm(moved - centers, axis=1))
    growth = swept.radii - radii
    assert np.all(reached <= growth + 1e-12) and reached[-1] > 0.2 * growth[-1] > 0.0


def test_postures_are_evenly_apart(robot, trajectory):
    swept = sweep_spheres(robot, trajectory, Scene(), 0.0, postures=6)
    steps = np.linalg.norm(np.diff(swept.centers, axis=0), axis=-1).max(axis=1)
    # In time they are not: the motion starts and ends slowly.
    assert steps.max() < 1.25 * steps.min() and np.ptp(np.diff(swept.times)) > 0.3
    still = BezierTrajectory(robot.home, np.zeros(7), np.zeros(7), robot.home, 3.0)
    assert len(sweep_spheres(robot, still, Scene(), 0.0, postures=6).times) == 1


def brute_force(robot, trajectory, spheres, distance):
    """The smallest of distance(centre, radius) of all spheres at fine times."""
    values = [
        min(distance(c, s.radius) for c, s in zip(centers_of(robot, spheres, q), spheres, strict=True))
        for q in trajectory.sample(np.linspace(0.0, 3.0, 600))[0]
    ]
    return min(values)


@pytest.mark.parametrize("size", [0.02, 0.1])
def test_nearest_obstacle(robot, trajectory, size):
    middle = sweep_spheres(robot, trajectory, Scene(), 0.0, postures=9).centers[5, -1]
    turn = np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    box = Obstacle("box", middle + np.array([0.15 + size, 0.15 + size, 0.15 + size]), np.full(3, size), turn)
    swept = sweep_spheres(robot, trajectory, Scene(obstacles=(box,), ground_height=-0.6), 0.0)
    found = swept.nearest
    assert found.names[1] == "box" and found.names[0] in {s.link for s in swept.spheres}
    exact = brute_force(robot, trajectory, swept.spheres, lambda c, radius: box.distance(c) - radius)
    assert exact - 1e-9 <= found.distance <= exact + 2e-3
    # Its points are that far apart, one on the box, one on a sphere of the link at that time.
    assert np.linalg.norm(found.points[1] - found.points[0]) == pytest.approx(found.distance, abs=1e-9)
    assert box.distance(found.points[1]) == pytest.approx(0.0, abs=1e-9)
    centers = centers_of(robot, swept.spheres, trajectory.evaluate(found.time)[0])
    radii = np.array([s.radius for s in swept.spheres])
    assert np.min(np.abs(np.linalg.norm(centers - found.points[0], axis=1) - radii)) < 1e-9
    # With errors there is less.
    with_errors = sweep_spheres(robot, trajectory, Scene(obstacles=(box,), ground_height=-0.6), ERROR)
    assert with_errors.nearest.distance < found.distance - 1e-3


def test_nearest_is_the_ground_or_another_link_or_nothing(robot, trajectory):
    alone = sweep_spheres(robot, trajectory, Scene(clearance=0.02), 0.0).nearest
    assert alone.clearance == 0.02
    assert "ground" not in alone.names
    assert np.linalg.norm(alone.points[1] - alone.points[0]) == pytest.approx(alone.distance, abs=1e-9)
    low = sweep_spheres(robot, trajectory, Scene(ground_height=0.1), 0.0)
    exact = brute_force(robot, trajectory, low.spheres, lambda c, radius: c[2] - 0.1 - radius)
    assert low.nearest.names[1] == "ground" and low.nearest.distance == pytest.approx(exact, abs=2e-3)
    assert low.nearest.points[1][2] == pytest.approx(0.1)
