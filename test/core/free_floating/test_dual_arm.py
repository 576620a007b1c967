"""The paper's dual-arm robot: its 52 minimal parameters, its settings, and exciting motions for it."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.free_floating.excitation import (
    ExcitationCancelled,
    ExcitationSettings,
    IntervalInformation,
    direction_combinations,
    largest_range,
    plan_by_direction_combinations,
    plan_with_free_knots,
    prune_intervals,
)
from sysid_ros.core.free_floating.minimal_parameters import build_minimal_parameters
from sysid_ros.core.free_floating.momentum import compute_base_twist, system_kinematic_matrix
from sysid_ros.core.free_floating.robot import available_free_flyers, load_free_flyer
from sysid_ros.core.model.loader import config_directories

# SPACE Table 5, true values, per body [Ixx, Iyy, Izz, Ixy, Iyz, Ixz, m, mcx, mcy, mcz] for the base and
# [Ixx - Iyy, Izz, Ixy, Iyz, Ixz, mcx, mcy] (with what is grouped to them) for the links.
TABLE_5 = {
    "base": [2130.560, 2078.560, 1555.700, -96.630, -269.450, -148.890, 2265.0, 440.5, 679.5, 1033.0],
    "joint_1": [-2.525, 192.775, 7.400, 3.825, 6.000, 100.0, -4.5],
    "joint_2": [-36.866, 55.134, 1.250, 1.670, -6.700, 46.0, -1.6],
    "joint_3": [-14.010, 55.030, 1.380, 5.500, 3.930, 21.0, 12.0],
    "joint_4": [19.600, 256.670, -18.850, 2.330, 4.810, 122.5, 21.25],
    "joint_5": [-66.290, 81.455, 2.112, 1.462, 21.483, 75.75, 1.75],
    "joint_6": [-25.810, 60.370, 27.100, -1.980, 21.270, 36.0, -30.0],
}
BASE = ("Ixx", "Iyy", "Izz", "Ixy", "Iyz", "Ixz", "m", "mcx", "mcy", "mcz")
LINK = ("Ixx", "Izz", "Ixy", "Iyz", "Ixz", "mcx", "mcy")
SMALL = ExcitationSettings(samples=2, iterations=1, starts=2, time_limit=30.0)


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("dual_arm")


def test_minimal_parameters_are_those_of_the_paper(robot):
    minimal = build_minimal_parameters(robot.tree)
    found = dict(zip(minimal.names, minimal.values(robot.truth), strict=True))
    expected = {}
    for body, values in TABLE_5.items():
        names = BASE if body == "base" else LINK
        expected |= {f"{body}.{name}": value for name, value in zip(names, values, strict=True)}
    assert found.keys() == expected.keys()
    assert len(found) == 52
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=6e-4), name


def test_bodies_of_the_paper_that_cannot_be_are_named(robot):
    """Its links break the triangle inequality, so a simulator of rigid bodies cannot take them as they are."""
    assert robot.bodies_without_physical_inertia(robot.truth) == tuple(f"joint_{k}" for k in range(1, 7))


def test_momentum_is_conserved_by_what_is_planned(robot):
    """Robot and wheels together have none, at random states with the wheels turning."""
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))
    wheels = robot.wheels.momentum(rng.uniform(-18.0, 18.0, (20, 3)))
    twist = compute_base_twist(robot.tree, robot.truth, q, v, -wheels)
    total = system_kinematic_matrix(robot.tree, q, v, twist) @ robot.truth + wheels
    assert np.abs(total).max() < 1e-10


def test_every_direction_combination_comes_once():
    found = {tuple(signs) for signs in direction_combinations(9)}
    assert len(found) == 256
    assert {signs[0] for signs in found} == {1}
    # The combinations of many joints need not exist at once.
    assert next(iter(direction_combinations(15))).size == 15


def test_grams_of_intervals_add_up_to_the_whole(robot):
    rng = np.random.default_rng(1)
    settings = ExcitationSettings(samples=3)
    information = IntervalInformation(robot, robot.truth, settings)
    knots = np.cumsum(rng.uniform(-0.04, 0.04, (41, 6)), axis=0)
    turns = settings.wheel_turn * rng.choice([-1.0, 1.0], (40, 3))
    parts = [information.gram(knots[k : k + 2], turns[k : k + 1]) for k in range(40)]
    whole = information.gram(knots, turns)
    assert np.abs(sum(parts) - whole).max() < 1e-12 * np.abs(whole).max()
    # Independently: the regressor itself, row by row, has these singular values.
    rows, _ = information.regressors(knots[:-1], knots[1:], turns)
    singular = np.linalg.svd(rows.reshape(-1, 52), compute_uv=False)
    assert information.condition_number(knots, turns) == pytest.approx(singular[0] / singular[-1], rel=1e-3)


def test_free_knots_respect_limits_and_improve_on_their_start(robot):
    plan = plan_with_free_knots(robot, robot.tree.parameters, 16, SMALL)
    joints = plan.motion.joints
    lower, upper = joints.position_extrema()
    assert np.all(lower >= robot.q_lower)
    assert np.all(upper <= robot.q_upper)
    assert np.abs(joints.velocity_extrema()).max() <= robot.v_max.max() * (1 + 1e-9)
    assert np.abs(joints.acceleration_extrema()).max() <= robot.a_max.max() * (1 + 1e-9)
    longer = ExcitationSettings(samples=2, iterations=4, starts=2, time_limit=30.0)
    improved = plan_with_free_knots(robot, robot.tree.parameters, 16, longer)
    assert improved.condition_number < plan.condition_number < np.inf
    assert plan.directions.shape == (16, 9)
    rates = plan.motion.wheel_rates(np.linspace(0.0, joints.duration, 500))
    assert np.abs(rates).max() <= 18.85


def test_the_three_steps_of_the_paper(robot):
    texts = []
    plan = plan_by_direction_combinations(
        robot, robot.tree.parameters, SMALL, on_progress=lambda share, text: texts.append((share, text))
    )
    assert texts[0] == (0.0, "optimising 256 intervals")
    assert texts[-1] == (1.0, "done")
    assert plan.motion.joints.intervals == len(plan.directions) <= 256
    assert len(np.unique(plan.directions, axis=0)) == len(plan.directions)
    steps = np.diff(plan.motion.joints.knots, axis=0)
    np.testing.assert_allclose(np.abs(steps), np.abs(steps[:1]).repeat(len(steps), 0), atol=1e-12)  # one range a joint
    lower, upper = plan.motion.joints.position_extrema()
    assert np.all((lower >= robot.q_lower - 1e-12) & (upper <= robot.q_upper + 1e-12))


def test_pruning_keeps_what_is_needed(robot):
    information = IntervalInformation(robot, robot.truth, SMALL)
    rng = np.random.default_rng(3)
    reach = largest_range(robot, SMALL.period)
    walk = np.cumsum(np.concatenate([np.zeros((1, 6)), reach * rng.choice([-1.0, 1.0], (60, 6))]), axis=0)
    turns = SMALL.wheel_turn * rng.choice([-1.0, 1.0], (60, 3))
    # The last thirty intervals do nothing at all, so none beyond the patience is worth keeping.
    knots = np.concatenate([walk, np.repeat(walk[-1:], 30, axis=0)])
    turns = np.concatenate([turns, np.zeros((30, 3))])
    kept = prune_intervals(information, knots, turns)
    assert sum(index >= 60 for index in kept) <= SMALL.patience + 1
    assert kept == sorted(set(kept))


def test_cancelled_and_impossible(robot):
    with pytest.raises(ExcitationCancelled):
        plan_with_free_knots(robot, robot.truth, 10, SMALL, is_cancelled=lambda: True)
    with pytest.raises(ParameterOutOfRange, match=r"intervals \[-\] is 0"):
        plan_with_free_knots(robot, robot.truth, 0, SMALL)
    with pytest.raises(ParameterOutOfRange, match=r"samples \[-\] is 1; allowed: 2 to 1000"):
        ExcitationSettings(samples=1)
    with pytest.raises(ParameterOutOfRange, match="wheel_y.*the wheel saturates"):
        robot.wheels.momentum([[0.0, 19.0, 0.0]])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s["joints"].pop("joint_3"), "joint_3"),
        (lambda s: s["joints"].update(elbow={}), "joint 'elbow' is unknown"),
        (lambda s: s["joints"]["joint_1"].update(position=[1.0, -1.0]), "the lower limit below the upper"),
        (lambda s: s["reaction_wheels"]["wheel_x"].update(axis=[1.0, 1.0, 0.0]), "a vector of length 1"),
        (lambda s: s.update(colour="red"), "no setting of that name"),
        (lambda s: s.update(urdf="missing.urdf"), "cannot read the free-flying robot"),
        (lambda s: s["truth"]["link_2"].update(mass=-1.0), "mass"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, change, text):
    source = next(folder for folder in config_directories()) / "space" / "dual_arm.yaml"
    settings = yaml.safe_load(source.read_text())
    settings["urdf"] = str((source.parent / settings["urdf"]).resolve())
    change(settings)
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises((ModelError, ParameterOutOfRange), match=text):
        load_free_flyer(path)


def test_an_unknown_name_lists_the_known():
    assert "dual_arm" in available_free_flyers()
    with pytest.raises(ModelError, match="'triple_arm' is unknown; known are .*dual_arm"):
        load_free_flyer("triple_arm")
