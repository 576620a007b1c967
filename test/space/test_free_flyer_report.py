"""Files of a free-flying robot and of what it holds: what they say, and reading back what is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from bench._space import simulate
from sysid_ros.cli.space import summarize_object
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.excitation import largest_range, largest_wheel_turns
from sysid_ros.space.core.identification import (
    ObjectSettings,
    ProcedureSettings,
    Task,
    estimate_free_flyer,
    estimate_held,
)
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.report import (
    SimulationTruth,
    held_object_html,
    read_known_robot,
    write_free_flyer,
    write_held_object,
)

HELD = from_com_form(12.0, [0.62, 0.05, -0.03], np.diag([0.4, 0.7, 0.6]))


def measured(robot, parameters):
    """Samples of a random motion, with white noise."""
    rng = np.random.default_rng(0)
    reach, turn = largest_range(robot, 1.0), largest_wheel_turns(robot, 1.0)
    steps = reach * rng.uniform(-1.0, 1.0, (40, robot.n))
    knots = robot.home + np.concatenate([np.zeros((1, robot.n)), np.cumsum(steps, axis=0)])
    motion = FloatingMotion(CycloidTrajectory(knots, 1.0), turn * rng.choice([-1.0, 1.0], (40, robot.wheels.count)))
    exact = simulate(robot, parameters, motion, np.arange(0.05, 40.0, 0.1))
    noise = rng.normal(size=(len(exact), 6 + robot.n)) * np.repeat(robot.noise, [3, 3, robot.n])
    return replace(exact, base_twist=exact.base_twist + noise[:, :6], v=exact.v + noise[:, 6:])


@pytest.fixture(scope="module")
def identified(robot):
    return estimate_free_flyer(Task(robot, ProcedureSettings()), measured(robot, robot.truth))


def test_estimate_of_a_robot(robot, identified, tmp_path):
    truth = SimulationTruth(robot.truth, np.zeros_like(robot.truth), np.array([0.0, 0.0, 3e-9, 0.0, -2e-9, 0.0]))
    write_free_flyer(identified, tmp_path, truth)
    content = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    rows = content["minimal_parameters"]
    assert len(rows) == 45
    for row in rows:
        assert row["prior_lower"] <= row["lower"] <= row["truth"] <= row["upper"] <= row["prior_upper"], row["name"]
    assert content["assumptions"]["probability"] == {"unit": "-", "value": 1e-6}
    assert content["guarantee"].startswith("Contains the true parameters if")
    assert content["simulation"]["momentum_drift"]["values"][2] == 3e-9
    page = (tmp_path / "report.html").read_text()
    assert "guaranteed bounds" in page
    assert "3.0e-09 kg m/s, 2.0e-09 kg m²/s" in page
    known = read_known_robot(tmp_path / "estimate.yaml", robot)
    np.testing.assert_allclose(known.box.lower, identified.bounds.box.lower, rtol=1e-12)
    np.testing.assert_allclose(known.values, identified.estimate.values, rtol=1e-12)


def test_a_robot_whose_bounds_are_inconsistent(robot, identified, tmp_path):
    narrow = Box.around(robot.tree.parameters, 1e-3 * np.abs(robot.tree.parameters))
    task = replace(identified.task, robot=replace(robot, prior=narrow))
    write_free_flyer(estimate_free_flyer(task, identified.data), tmp_path)
    content = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    assert "no parameters are consistent" in content["alarm"]
    assert "lower" not in content["minimal_parameters"][0]
    assert "No guaranteed bounds" in (tmp_path / "report.html").read_text()
    with pytest.raises(SysidError, match="'lower' is missing"):
        read_known_robot(tmp_path / "estimate.yaml", robot)


@pytest.mark.slow
def test_estimate_of_an_object(robot, identified, tmp_path):
    held = np.zeros_like(robot.truth)
    held[-10:] = HELD
    settings = ObjectSettings(mass=60.0)
    data = measured(robot, robot.truth + held)
    found = estimate_held(identified.task, settings, identified.known_robot, data)
    simulation = SimulationTruth(robot.truth, held)
    write_held_object(found, tmp_path, simulation)
    content = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    assert content["frame"] == "tool"
    assert content["mass"]["lower"] <= content["mass"]["truth"] == pytest.approx(12.0)
    assert content["mass"]["truth"] <= content["mass"]["upper"]
    np.testing.assert_allclose(content["com"]["truth"], [0.17, 0.05, -0.03], atol=1e-9)
    assert np.all(np.array(content["com"]["lower"]) <= content["com"]["truth"])
    _, placement = robot.frame("tool")
    truth = transform_parameters(HELD, placement.rotation.T, -placement.rotation.T @ placement.translation)
    for row, value in zip(content["parameters"], truth, strict=True):
        assert row["truth"] == pytest.approx(value, abs=1e-9)
        assert row["prior_lower"] <= row["lower"] <= row["truth"] <= row["upper"] <= row["prior_upper"]
    page = (tmp_path / "report.html").read_text()
    assert "Object in the hand" in page
    # Two recordings count, each with a probability of its own.
    assert found.estimate.bounds.probability == pytest.approx(2e-6)
    assert "except with a probability of at most 2e-06" in page
    assert "because of" in page
    # An object that perhaps weighs nothing has a CoM without bounds, and bounds of zero have no sign.
    nowhere = replace(found.estimate, com_box=Box(np.full(3, -np.inf), np.full(3, np.inf)))
    light = replace(found, estimate=nowhere)
    page = held_object_html(light, simulation)
    assert "not bounded: perhaps it weighs nothing" in page
    assert "inf" not in page.split("<section>")[0].split("<h1>")[1]
    assert "perhaps it weighs nothing" in summarize_object(light)
    wide = Box(np.full(10, -30.0), np.full(10, -0.2))
    bounds = replace(found.estimate.bounds, box=wide)
    assert ">-30 to 0<" in held_object_html(replace(found, estimate=replace(nowhere, bounds=bounds)), simulation)
    # An alarm has a page and an estimate of its own, without numbers of an object.
    wrong = estimate_held(identified.task, ObjectSettings(mass=3.0), identified.known_robot, data)
    write_held_object(wrong, tmp_path, simulation)
    content = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
    assert not content["is_consistent"]
    assert "mass" not in content
    assert "Inconsistent" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not subscriptable"),
        ("minimal_parameters: []", "'base.Ixx' is missing|'base.m' is missing"),
        ("a: [", "expected"),
    ],
)
def test_files_that_say_nothing_of_the_robot(robot, tmp_path, text, reason):
    path = tmp_path / "estimate.yaml"
    path.write_text(text)
    with pytest.raises(SysidError, match=reason):
        read_known_robot(path, robot)
    with pytest.raises(SysidError, match="there is no such file"):
        read_known_robot(tmp_path / "none.yaml", robot)
