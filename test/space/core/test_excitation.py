"""Exciting motions of the dual-arm robot: gradients, limits, collisions, direction combinations, pruning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.papers.baselines.direction_combinations import (
    CombinationSettings,
    direction_combinations,
    plan_by_direction_combinations,
    prune_intervals,
    seeded_knots,
    significant_values,
)
from sysid_ros.space.core.bounds import object_columns
from sysid_ros.space.core.excitation import ExcitationSettings, largest_range, largest_wheel_turns, plan_with_free_knots
from sysid_ros.space.core.intervals import FloatingMotion, IntervalInformation, condition_number, smooth_condition
from sysid_ros.space.core.momentum import FloatingTree, compute_base_twist, system_kinematic_matrix
from sysid_ros.space.core.robot import FreeFlyer, ReactionWheels, load_free_flyer
from sysid_ros.space.core.self_collision import SelfCollisionModel

SMALL = CombinationSettings(samples=2, iterations=1, starts=2, restarts=0, time_limit=30.0)


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("dual_arm")


def random_motion(robot, seed, intervals=40):
    rng = np.random.default_rng(seed)
    steps = rng.uniform(-0.04, 0.04, (intervals + 1, robot.n))
    knots = robot.home + np.cumsum(steps, axis=0)
    return knots, 3.0 * np.pi * rng.uniform(-1.0, 1.0, (intervals, robot.wheels.count))


def sliding_robot():
    """Return a free flyer with a branch, skew axes and a prismatic joint."""
    model = pin.Model()
    rng = np.random.default_rng(7)
    parents = [model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root")]
    kinds = [
        pin.JointModelRX(), pin.JointModelPrismaticUnaligned(np.array([0.6, 0.0, 0.8])),
        pin.JointModelRevoluteUnaligned(np.array([0.0, 0.6, 0.8])), pin.JointModelPY(),
    ]  # fmt: skip
    model.appendBodyToJoint(1, pin.Inertia.Random(), pin.SE3.Identity())
    for k, kind in enumerate(kinds):
        parent = parents[0] if k == 2 else parents[-1]
        parents.append(model.addJoint(parent, kind, pin.SE3.Random(), f"j{k}"))
        model.appendBodyToJoint(parents[-1], pin.Inertia.Random(), pin.SE3.Identity())
    tree = FloatingTree(model)
    ones = np.ones(4)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    wheels = ReactionWheels(("a", "b"), axes[:2], np.array([0.3, 0.5]), np.array([50.0, 50.0]))
    names = tree.body_names[1:]
    return FreeFlyer(
        "test", "<robot name='x'/>", tree, names, 0 * ones, -ones, ones, ones, 5 * ones, wheels, np.ones(3), None
    )


@pytest.mark.parametrize("name", ["dual_arm", "sliding", "servicer"])
def test_gradient_against_finite_differences(name):
    """Of weighted Gram matrix, squares of velocities and something that depends on where bodies are."""
    robot = sliding_robot() if name == "sliding" else load_free_flyer(name)
    # Of the servicer with columns of other parameters than the minimal ones, those of an object.
    columns = object_columns(robot, "tool") * np.linspace(1.0, 3.0, 10) if name == "servicer" else None
    information = IntervalInformation(robot, robot.tree.parameters, 1.0, 3, columns)
    knots, turns = random_motion(robot, 0, 9)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(information.count,) * 2)
    weights += weights.T
    pull = rng.normal(size=(27, robot.tree.count, 3))

    def value(knots, turns):
        intervals = information.evaluate(knots[:-1], knots[1:], turns)
        work = (pull * intervals.joints.positions).sum()
        return (weights * intervals.gram()).sum() + 0.7 * intervals.squares() + work

    intervals = information.evaluate(knots[:-1], knots[1:], turns)
    forces = np.concatenate([pull, np.cross(intervals.joints.positions, pull)], axis=-1)
    starts, ends, along_turns = information.gradient(intervals, weights, 0.7, forces)
    slope = np.zeros_like(knots)
    slope[:-1] += starts
    slope[1:] += ends
    for _ in range(5):
        a, b = rng.normal(size=knots.shape), rng.normal(size=turns.shape)
        h = 1e-5
        found = (value(knots + h * a, turns + h * b) - value(knots - h * a, turns - h * b)) / (2 * h)
        assert (slope * a).sum() + (along_turns * b).sum() == pytest.approx(found, rel=2e-6)


def test_smooth_condition_and_its_slope():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(40, 6)) * [1, 1, 2, 3, 5, 0.1]
    gram, change = rows.T @ rows, rng.normal(size=(6, 6))
    change += change.T
    value, slope = smooth_condition(gram)
    condition = np.linalg.cond(rows)
    assert 2 * np.log(condition) <= value <= 2 * np.log(condition) + 2 * np.log(6) / 6
    h = 1e-6
    found = (smooth_condition(gram + h * change)[0] - smooth_condition(gram - h * change)[0]) / (2 * h)
    assert (slope * change).sum() == pytest.approx(found, rel=1e-5)


def test_grams_of_intervals_add_up_to_the_regressor(robot):
    """Row by row from the momentum model itself, with the motion of the base that follows."""
    information = IntervalInformation(robot, robot.truth, 1.0, 3)
    knots, turns = random_motion(robot, 1)
    whole = information.gram(knots, turns)
    assert np.abs(information.grams(knots, turns).sum(axis=0) - whole).max() < 1e-12 * np.abs(whole).max()
    motion = FloatingMotion(CycloidTrajectory(knots, 1.0), turns)
    times = (np.arange(120) + 0.5) / 3
    q, v, _ = motion.joints.sample(times)
    momentum = -robot.wheels.momentum(motion.wheel_rates(times))
    twist = compute_base_twist(robot.tree, robot.truth, q, v, momentum)
    rows = information.minimal.columns(system_kinematic_matrix(robot.tree, q, v, twist)).reshape(-1, 52)
    np.testing.assert_allclose(rows.T @ rows, whole, rtol=0, atol=1e-12 * np.abs(whole).max())
    assert information.condition_number(knots, turns) == pytest.approx(np.linalg.cond(rows), rel=1e-3)


@pytest.mark.slow
def test_free_knots_respect_limits_and_improve(robot):
    plan = plan_with_free_knots(robot, robot.tree.parameters, 16, SMALL)
    joints = plan.motion.joints
    lower, upper = joints.position_extrema()
    assert np.all((lower >= robot.q_lower) & (upper <= robot.q_upper))
    assert np.all(np.abs(joints.velocity_extrema()) <= robot.v_max * (1 + 1e-9))
    assert np.all(np.abs(joints.acceleration_extrema()) <= robot.a_max * (1 + 1e-9))
    longer = ExcitationSettings(samples=2, iterations=8, starts=2, restarts=2, time_limit=30.0)
    improved = plan_with_free_knots(robot, robot.tree.parameters, 16, longer)
    assert improved.condition_number < plan.condition_number < np.inf
    assert plan.directions.shape == (16, 9)
    rates = plan.motion.wheel_rates(np.linspace(0.0, joints.duration, 500))
    assert np.all(np.abs(rates) <= robot.wheels.speeds)
    assert plan.gap >= SMALL.clearance


@pytest.mark.slow
def test_a_second_part_begins_where_the_first_ends_and_counts_it(robot):
    first = plan_with_free_knots(robot, robot.tree.parameters, 12, SMALL, start=robot.home)
    np.testing.assert_array_equal(first.motion.joints.knots[0], robot.home)
    second = plan_with_free_knots(robot, robot.truth, 12, SMALL, before=first.motion)
    np.testing.assert_array_equal(second.motion.joints.knots[0], first.motion.joints.knots[-1])
    information = IntervalInformation(robot, robot.truth, SMALL.period, SMALL.samples)
    alone = information.condition_number(second.motion.joints.knots, second.motion.wheel_turns)
    assert second.condition_number < alone


def test_what_is_left_of_a_plan_is_where_the_next_search_begins(robot):
    whole = plan_with_free_knots(robot, robot.tree.parameters, 16, SMALL, start=robot.home)
    first, rest = whole.motion.part(0, 4), whole.motion.part(4)
    np.testing.assert_array_equal(first.joints.knots[-1], rest.joints.knots[0])
    at_once = iter(np.arange(0.0, 1e6, 100.0))  # no time for anything but the guess
    kept = plan_with_free_knots(
        robot, robot.tree.parameters, 12, SMALL, before=first, guess=rest, clock=lambda: next(at_once)
    )
    np.testing.assert_allclose(kept.motion.joints.knots, rest.joints.knots, atol=1e-12)
    assert kept.condition_number == pytest.approx(whole.condition_number, rel=1e-9)
    better = plan_with_free_knots(robot, robot.truth, 12, SMALL, before=first, guess=rest)
    information = IntervalInformation(robot, robot.truth, SMALL.period, SMALL.samples)
    old = information.condition_number(whole.motion.joints.knots, whole.motion.wheel_turns)
    assert better.condition_number < old
    with pytest.raises(ParameterOutOfRange, match=r"intervals of the guess .* 12: expected 9"):
        plan_with_free_knots(robot, robot.truth, 9, SMALL, before=first, guess=rest)


@pytest.mark.slow
def test_motions_keep_clear_of_the_robot_itself(robot):
    """Densely sampled, a proven motion has no smaller gap; one through the base, and one at it, are refused."""
    model = SelfCollisionModel(robot)
    assert model.bare_bodies == ()
    plan = plan_with_free_knots(robot, robot.tree.parameters, 40, SMALL, start=robot.home)
    q = plan.motion.joints.sample(np.linspace(0.0, plan.motion.joints.duration, 3000))[0]
    assert model.gaps(robot.tree.evaluate(q, np.zeros_like(q))).min() >= SMALL.clearance
    across = robot.home.copy()
    across[3] = -0.2  # the second arm swings through the first
    swing = CycloidTrajectory(np.array([robot.home, across]), 1.0)
    with pytest.raises(PlanRejected, match=r"joint_\d and joint_\d, .* allowed"):
        model.prove(swing, 0.0)
    down = robot.home.copy()
    down[1] = -1.7
    with pytest.raises(PlanRejected, match=r"(base|joint_\d) and joint_\d, .* allowed"):
        model.prove(CycloidTrajectory(np.array([down, down + 0.001]), 1.0), 0.3)


@pytest.mark.slow
def test_a_motion_that_touches_is_mended_however_late_it_is(robot):
    """From a guess along which the second arm swings through the first, with no time left for any search."""
    settings = replace(SMALL, iterations=100, time_limit=1.0)
    knots = robot.home + np.zeros((41, 1))
    swing = np.concatenate([np.linspace(0.0, 1.0, 21), np.linspace(1.0, 0.0, 21)[1:]])
    knots[:, 3] = 0.5 - 0.7 * swing
    guess = FloatingMotion(CycloidTrajectory(knots, 1.0), np.ones((40, robot.wheels.count)))
    model = SelfCollisionModel(robot)
    with pytest.raises(PlanRejected):
        model.prove(guess.joints, SMALL.clearance)
    late = iter(np.arange(0.0, 1e6, 100.0))
    plan = plan_with_free_knots(
        robot, robot.tree.parameters, 40, settings, start=knots[0], guess=guess, clock=lambda: next(late)
    )
    assert model.prove(plan.motion.joints, SMALL.clearance) >= SMALL.clearance


def test_slope_of_missing_clearance(robot):
    model, rng = SelfCollisionModel(robot), np.random.default_rng(4)
    information = IntervalInformation(robot, robot.truth, 1.0, 2)
    knots, turns = random_motion(robot, 5, 30)
    knots = np.clip(rng.uniform(-2.2, 2.2, (31, 6)), robot.q_lower, robot.q_upper)
    zero = np.zeros((52, 52))

    def value(knots):
        return model.penalty(information.evaluate(knots[:-1], knots[1:], 0 * turns).joints, 0.1)[0]

    intervals = information.evaluate(knots[:-1], knots[1:], 0 * turns)
    starts, ends, _ = information.gradient(intervals, zero, forces=model.penalty(intervals.joints, 0.1)[1])
    slope = np.zeros_like(knots)
    slope[:-1] += starts
    slope[1:] += ends
    assert np.abs(slope).max() > 0.1
    change, h = rng.normal(size=knots.shape), 1e-7
    found = (value(knots + h * change) - value(knots - h * change)) / (2 * h)
    assert (slope * change).sum() == pytest.approx(found, rel=1e-4)


def test_a_start_that_touches_is_refused(robot):
    settings = ExcitationSettings(samples=2, iterations=3, starts=1, time_limit=1.0)
    with pytest.raises(PlanRejected, match="start from another posture"):
        plan_with_free_knots(robot, robot.truth, 3, settings, start=np.zeros(6))


def test_every_direction_combination_comes_once():
    found = {tuple(signs) for signs in direction_combinations(9)}
    assert len(found) == 256
    assert {signs[0] for signs in found} == {1}
    # Of many joints a draw comes, without the others: 2^39 could not be formed.
    drawn = {tuple(signs) for signs in direction_combinations(40, 100)}
    assert len(drawn) == 100
    assert len(list(direction_combinations(5, 16))) == 16


def test_combinations_count_in_the_order_of_the_paper():
    """The second joint changes last, the last wheel with every interval, from all positive on."""
    found = list(direction_combinations(9))
    np.testing.assert_array_equal(found[:3], [[1] * 9, [1] * 8 + [-1], [1] * 7 + [-1, 1]])
    np.testing.assert_array_equal(found[128], [1, -1] + [1] * 7)


def test_fingerprints_of_the_paper(robot):
    """The paper's seeds (Table 4) on the true robot: its significant singular values, interval by interval."""
    starts = np.deg2rad([40.661, -109.403, -78.782, 125.089, -110.0, 51.228])
    ranges = np.deg2rad([0.524, 2.51, 2.51, 2.513, 2.036, 2.5])
    settings = CombinationSettings(samples=10)
    truth, offset = (IntervalInformation(robot, values, 1.0, 10) for values in (robot.truth, robot.tree.parameters))
    directions = np.array(list(direction_combinations(9)))

    def grams(information, chosen):
        turns = largest_wheel_turns(robot, 1.0) * chosen[:, robot.n :]
        return information.grams(seeded_knots(chosen, starts, ranges), turns)

    def significant(gram):
        return significant_values(gram, settings.significant)

    planned = grams(offset, directions)
    everything = grams(truth, directions[prune_intervals(planned, replace(settings, gain=0.0))])
    pruned = grams(truth, directions[prune_intervals(planned, settings)])
    assert len(pruned) == 67  # of 256, as in the paper
    assert {significant(gram) for gram in [*everything, *pruned]} <= set(range(8, 12))
    total = np.cumsum(pruned, axis=0)
    assert [significant(total[k - 1]) for k in (1, 3, 40)] == [11, 20, 46]
    values = np.sqrt(np.linalg.eigvalsh(total[19])[:-41:-1])
    assert values[38] / values[0] == pytest.approx(1.0 / 300.0, rel=0.05)  # whether 38, as printed, or 39 is a hair
    assert values[37] / values[0] > 1.1 / 300.0
    # 248.8 in the paper, which lies between pruning without and with the threshold; 52 of 52 means below 300.
    assert significant(everything.sum(axis=0)) == 52
    assert condition_number(everything.sum(axis=0)) < 248.8 < condition_number(total[-1]) < 380.0


def test_the_three_steps_of_the_paper(robot):
    texts = []
    plan = plan_by_direction_combinations(
        robot, robot.tree.parameters, SMALL, on_progress=lambda share, text: texts.append((share, text))
    )
    assert texts[0] == (0.0, "optimising 256 intervals")
    assert texts[-1][0] == 1.0
    assert plan.motion.joints.intervals == len(plan.directions)
    assert len(np.unique(plan.directions, axis=0)) == len(plan.directions)
    assert 40 < len(plan.directions) < 100  # 67 in the paper
    steps = np.diff(plan.motion.joints.knots, axis=0)
    np.testing.assert_allclose(np.abs(steps), np.abs(steps[:1]).repeat(len(steps), 0), atol=1e-12)  # one range a joint
    lower, upper = plan.motion.joints.position_extrema()
    assert np.all((lower >= robot.q_lower - 1e-12) & (upper <= robot.q_upper + 1e-12))
    assert np.all(np.abs(steps) <= largest_range(robot, SMALL.period) * (1 + 1e-9))


def test_pruning_keeps_what_is_needed(robot):
    information = IntervalInformation(robot, robot.truth, SMALL.period, SMALL.samples)
    rng = np.random.default_rng(3)
    reach = largest_range(robot, SMALL.period)
    walk = np.cumsum(np.concatenate([np.zeros((1, 6)), reach * rng.choice([-1.0, 1.0], (60, 6))]), axis=0)
    turns = 3.0 * np.pi * rng.choice([-1.0, 1.0], (60, 3))
    # The last thirty intervals do nothing at all, so none beyond the patience is worth keeping.
    knots = np.concatenate([walk, np.repeat(walk[-1:], 30, axis=0)])
    turns = np.concatenate([turns, np.zeros((30, 3))])
    kept = prune_intervals(information.grams(knots, turns), SMALL)
    assert sum(index >= 60 for index in kept) <= SMALL.patience
    assert len(prune_intervals(information.grams(knots, turns), replace(SMALL, gain=0.0))) > len(kept)
    assert kept == sorted(set(kept))


def test_cancelled_late_and_impossible(robot):
    for plan in (
        lambda **more: plan_with_free_knots(robot, robot.truth, 10, SMALL, **more),
        lambda **more: plan_by_direction_combinations(robot, robot.truth, SMALL, **more),
    ):
        with pytest.raises(Cancelled):
            plan(is_cancelled=lambda: True)
    ticks = iter(np.arange(0.0, 1e6, 10.0))  # a clock by which the time is over at once
    hurried = plan_with_free_knots(robot, robot.truth, 10, SMALL, start=robot.home, clock=lambda: next(ticks))
    assert hurried.gap >= SMALL.clearance
    with pytest.raises(ParameterOutOfRange, match=r"intervals \[-\] 0"):
        plan_with_free_knots(robot, robot.truth, 0, SMALL)
    with pytest.raises(ParameterOutOfRange, match=r"start \[rad\]"):
        plan_with_free_knots(robot, robot.truth, 3, SMALL, start=[9.0] * 6)
    with pytest.raises(ParameterOutOfRange, match=r"samples.* 0: expected from 1 to 1000"):
        ExcitationSettings(samples=0)
