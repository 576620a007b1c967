"""Distance bounds of the verifier against coal and dense sampling with random errors."""

from __future__ import annotations

import coal
import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook
from verifier_cases import make_boxes_around, make_plan

from sysid_ros.core.certification.chain import Motion, enclose_path
from sysid_ros.core.certification.distance import SphereBounds
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.trajectories.families import BezierTrajectory

NAMES = ("kinova_gen3_2f85", "kuka_lbr_iiwa14")


class Coal:
    """Distances by an independent library, in Pinocchio's world frame."""

    def __init__(self, robot, collision):
        self._model, self._data = robot.pin_model, robot.pin_model.createData()
        self._collision = collision
        self._balls = [coal.Sphere(sphere.radius) for sphere in collision.spheres]
        self._boxes = [
            (coal.Box(2.0 * o.half_extents), coal.Transform3s(o.rotation, o.center)) for o in collision.obstacles
        ]

    def place(self, q):
        pin.forwardKinematics(self._model, self._data, q)
        self.centers = np.array([self._data.oMi[s.body].act(s.center) for s in self._collision.spheres])

    def _ball(self, index):
        return self._balls[index], coal.Transform3s(np.eye(3), self.centers[index])

    def distance(self, first, second):
        result = coal.DistanceResult()
        return coal.distance(*first, *second, coal.DistanceRequest(), result)

    def self_collision(self):
        return np.array([self.distance(self._ball(i), self._ball(j)) for i, j in self._collision.pairs])

    def obstacles(self):
        return np.array([self.distance(self._ball(k), box) for box in self._boxes for k in self._collision.movable])


def pieces_of(trajectory, count):
    half = np.full(count, 0.5 * trajectory.duration / count)
    return half * (2 * np.arange(count) + 1), half


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("count", "error"), [(4, 0.0), (15, 0.02), (15, 0.1), (60, 0.01)])
def test_no_error_brings_anything_closer(name, count, error):
    robot, rng = load_textbook(name), np.random.default_rng(count)
    tree, closest = JointTree.of(robot, in_base=True), {}
    for _ in range(4):
        plan = make_plan(robot, rng, speed=2.0)
        scene = Scene(make_boxes_around(rng, 4), ground_height=-0.05)
        collision = build_scene_model(robot, scene)
        truth = Coal(robot, collision)
        middle, half = pieces_of(plan, count)
        bounds = SphereBounds(robot, collision, np.full(robot.n, error))
        gaps = {gap.limit.value: gap for gap in bounds.evaluate(Motion(tree, enclose_path(plan, middle, half)))}
        assert set(gaps) == {"self-collision", "ground", "obstacle"}
        for piece in rng.integers(0, count, 3):
            for u in (-1.0, 1.0, *rng.uniform(-1, 1, 3)):
                q = plan.sample([middle[piece] + u * half[piece] * (1 - 1e-12)])[0][0]
                truth.place(q + error * rng.choice([-1.0, 1.0, 0.3], robot.n))
                radii = np.array([sphere.radius for sphere in collision.spheres])
                ground = (truth.centers[:, 2] - radii)[collision.movable] - scene.ground_height
                found = {"self-collision": truth.self_collision(), "ground": ground, "obstacle": truth.obstacles()}
                for kind, distances in found.items():
                    bound = gaps[kind].bound[:, piece]
                    # coal's own tolerance is 1e-6; inside of each other it is less exact
                    apart = distances > 1e-4
                    assert np.all(distances[apart] >= bound[apart] - 2e-6), kind
                    closest[kind] = min(closest.get(kind, np.inf), (distances - bound)[apart].min())
    # Not vacuous: some bound is nearly reached.
    assert max(closest.values()) < 0.02 + 0.6 * error


def test_depths_inside_obstacles():
    """Inside a box, too, the bound is below the (negative) distance, which moving out through a face takes."""
    robot = load_textbook("kinova_gen3_2f85")
    box = Obstacle("crate", [0.3, 0.1, 0.6], [0.3, 0.25, 0.2], pin.exp3(np.array([0.3, -0.2, 0.5])))
    collision = build_scene_model(robot, Scene((box,)))
    plan = BezierTrajectory(robot.home, np.zeros(7), np.zeros(7), robot.home + 0.3, 2.0)
    middle, half = pieces_of(plan, 20)
    gap = SphereBounds(robot, collision, np.zeros(7)).evaluate(
        Motion(JointTree.of(robot, in_base=True), enclose_path(plan, middle, half))
    )[-1]
    truth = Coal(robot, collision)
    deepest = np.inf
    for piece in range(20):
        truth.place(plan.sample([middle[piece]])[0][0])
        radii = np.array([collision.spheres[k].radius for k in collision.movable])
        exact = box.distance(truth.centers[collision.movable]) - radii
        np.testing.assert_allclose(gap.middle[:, piece], exact, atol=1e-12)
        assert np.all(gap.bound[:, piece] <= exact + 1e-12)
        deepest = min(deepest, exact.min())
    assert deepest < -0.1


def test_second_derivatives_are_below_their_bound():
    """``|d^2 p / dq_i dq_j| <= R_ij`` by finite differences at random postures."""
    robot, rng = load_textbook("kinova_gen3_2f85"), np.random.default_rng(0)
    collision = build_scene_model(robot, Scene())
    truth = Coal(robot, collision)
    bound = SphereBounds(robot, collision, np.zeros(7))._second
    largest, step = np.zeros_like(bound), 1e-4

    def centers(q):
        truth.place(q)
        return truth.centers

    unit = step * np.eye(7)
    for _ in range(20):
        q = rng.uniform(-3, 3, 7)
        for i in range(7):
            for j in range(7):
                corners = [centers(q + s * unit[i] + r * unit[j]) * s * r for s in (-1, 1) for r in (-1, 1)]
                largest[:, i, j] = np.maximum(largest[:, i, j], np.linalg.norm(sum(corners), axis=1) / (4 * step**2))
    assert np.all(largest <= bound + 1e-5)
    assert np.all(bound[:, :, 0].max(axis=1)[12:] <= 3.0 * largest[:, :, 0].max(axis=1)[12:] + 0.1)
