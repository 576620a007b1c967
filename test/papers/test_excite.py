"""Experiments of EXCITE: the paper's problem, the errors of guided models, and the command that repeats them."""

import json
import math

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers import excite, excite_report, names
from sysid_ros.papers.guided_arm import build, draw_error, typical_regressor

VENDOR = np.array(excite.RESIDUALS["vendor's own model"])


@pytest.fixture(scope="module")
def robot():
    return load_robot(names.EXCITE_ROBOT)


@pytest.fixture(scope="module")
def problem(robot):
    return excite.PublishedProblem(excite.assumptions_of(robot, True), excite.r_c)


@pytest.mark.parametrize("criterion", [excite.r_c, excite.squared_condition, excite.CRITERIA[names.MEAN_R_C]])
def test_gradients_of_criteria(criterion):
    rng = np.random.default_rng(1)
    rows, change, step = rng.normal(size=(30, 5)), rng.normal(size=(5, 5)), 1e-6
    gram, change = rows.T @ rows, change + change.T
    slope = (criterion(gram + step * change)[0] - criterion(gram - step * change)[0]) / (2.0 * step)
    np.testing.assert_allclose(np.sum(criterion(gram)[1] * change), slope, rtol=1e-6)


def test_theorem_1_and_what_r_c_depends_on():
    rows = np.random.default_rng(2).normal(size=(40, 6))
    gram = rows.T @ rows
    assert excite.r_c(gram)[0] >= np.linalg.cond(rows)
    np.testing.assert_allclose(excite.squared_condition(gram)[0], np.linalg.cond(rows) ** 2, rtol=1e-9)
    norms = np.linalg.norm(gram), np.linalg.norm(np.linalg.inv(gram))
    np.testing.assert_allclose(excite.r_c(gram)[0], sum(norms) / 2.0, rtol=1e-9)
    # In other units of torque it is another number, least where both norms are equal.
    best = excite.r_c(gram * math.sqrt(norms[1] / norms[0]))[0]
    np.testing.assert_allclose(best, math.sqrt(norms[0] * norms[1]), rtol=1e-9)
    assert best < 0.5 * excite.r_c(gram)[0]


@pytest.mark.parametrize("stage", [(False, 20.0), (True, 400.0)])
def test_gradient_of_the_published_problem(problem, stage):
    rng, step = np.random.default_rng(3), 1e-6
    y, along = 1.3 * problem.draw(rng), rng.normal(size=problem.size)
    slope = (problem.objective(y + step * along, *stage)[0] - problem.objective(y - step * along, *stage)[0]) / step / 2
    np.testing.assert_allclose(problem.objective(y, *stage)[1] @ along, slope, rtol=1e-4)


def test_drawn_motions_are_the_papers_and_keep_its_limits(problem, robot):
    path = problem.trajectory(problem.draw(np.random.default_rng(4)))
    order, omega = np.arange(1.0, 6.0), 2.0 * np.pi / 10.0
    a, b, limits = path.sine, path.cosine, robot.limits
    for t in (0.0, 1.7, 10.0):  # (9b)
        q = (a / (omega * order) * np.sin(omega * order * t) - b / (omega * order) * np.cos(omega * order * t)).sum(1)
        np.testing.assert_allclose(path.sample(np.array([t]))[0][0], q, atol=1e-12)
    for condition in (a.sum(1), (b / order).sum(1), (b * order).sum(1)):  # (9c) with a and b exchanged
        np.testing.assert_allclose(condition, 0.0, atol=1e-12)
    size, q_max = np.hypot(a, b), np.minimum(limits.q_upper, -limits.q_lower)
    shares = [
        (size / order).sum(1) / (omega * q_max),  # (9d)
        size.sum(1) / limits.v_max,  # (9e)
        *(np.abs(c) / np.minimum(omega * order * q_max[:, None] / 5, limits.v_max[:, None]) for c in (a, b)),  # (9f, g)
    ]
    used = np.max([share.reshape(7, -1).max(1) for share in shares], axis=0)
    np.testing.assert_allclose(used, 1.0)
    assert np.abs(path.sample(np.linspace(0.0, 10.0, 500))[1] / limits.v_max).max() <= 1.0


def test_searches_reach_less_than_their_draws(problem):
    draws = [problem.cost(problem.draw(np.random.default_rng(k)))[0] for k in range(5)]
    for y, tries in (excite.search_published(problem, 1.5, 0, (False, True)), excite.search_memetic(problem, 1.5, 0)):
        assert tries >= 1 and problem.cost(y)[0] < min(draws)
        assert problem.usage(y).max() <= 1.0 + 1e-9 and problem.least_distance(y) > 0.0


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_models_have_the_wanted_torques(robot, seed):
    error, offset = draw_error(robot, VENDOR, seed)
    regressor = typical_regressor(robot, np.random.default_rng((seed, 5)))
    np.testing.assert_allclose(np.sqrt(np.mean((regressor @ error + offset) ** 2, axis=0)), VENDOR, rtol=1e-9)


def test_a_guided_arm_at_rest_shows_the_error_of_its_model(robot):
    """Measured torques less the model's, by Pinocchio."""
    error, offset = draw_error(robot, VENDOR, 1)
    model = robot.theta_nominal + np.append(error, np.zeros(4 * robot.n))
    run = build(robot, robot.theta_nominal, np.zeros(10), model, 1, offset)
    for _ in range(5):
        sample = run.step().sample
    believed = robot.pin_model.copy()
    for body in range(robot.n):
        believed.inertias[body + 1] = pin.Inertia.FromDynamicParameters(model[10 * body : 10 * (body + 1)])
    gravity = pin.computeGeneralizedGravity(believed, believed.createData(), sample.q)
    rest = robot.home[None], np.zeros((1, robot.n)), np.zeros((1, robot.n))
    expected = -(TorqueRegressor(robot).inertial(*rest)[0] @ error + offset)
    sensors = robot.sensors
    noise = sensors.effort_absolute_error + sensors.effort_relative_error * np.abs(sample.tau)
    assert np.all(np.abs(sample.tau - gravity - expected) < noise + 0.02)


def test_a_recording_is_predicted_from_its_halves(robot, tmp_path):
    t = np.arange(0.0, 8.0, 0.01)
    rates = np.linspace(0.9, 2.1, robot.n)
    q = robot.home + 0.3 * np.sin(np.outer(t, rates))
    v, a = 0.3 * rates * np.cos(np.outer(t, rates)), -0.3 * rates**2 * np.sin(np.outer(t, rates))
    model, data = robot.pin_model, robot.pin_model.createData()
    tau = np.array([pin.rnea(model, data, *state) for state in zip(q, v, a, strict=True)])
    tau += 0.4 * np.tanh(v / 0.01)
    np.savez(tmp_path / "arm.npz", fast_t=t, fast_q=q, fast_tau=tau, fast_tau_ext_kuka=np.full_like(tau, 0.25))
    result = excite.run(names.TORQUES, recording=str(tmp_path / "arm.npz"))
    np.testing.assert_allclose(result["rms"][names.CONTROLLER][0], 0.25, rtol=1e-6)
    np.testing.assert_allclose(result["rms"][names.URDF][0], 0.4, rtol=0.05)
    assert np.all(np.less(result["rms"][names.IDENTIFIED][1], 0.1))
    assert np.all(np.greater_equal(result["largest"][names.URDF], result["rms"][names.URDF]))
    (job, *_) = excite.guiding_jobs([{"job": {"experiment": names.TORQUES}, "result": result}], 1)
    np.testing.assert_allclose(job["rms"], result["rms"][names.IDENTIFIED][1], atol=5e-4)


@pytest.mark.slow
def test_without_the_tool_in_its_model_an_arm_drifts():
    drifts = [excite.run(names.GUIDING, model=model, rms=[0.02] * 7, seed=0)["drift"] for model in names.GUIDING_MODELS]
    assert max(drifts[:2]) < 0.1 and drifts[2] > 50.0  # mm; without the tool


@pytest.mark.slow
def test_the_command_prints_tables_and_draws_figures(tmp_path, capsys):
    words = ["papers", "excite", "--results", str(tmp_path), "--experiment", names.MOTIONS, "--seconds", "6"]
    assert door.main(words) == ExitStatus.OK
    printed = capsys.readouterr().out
    assert all(way in printed for way in names.EXCITE_WAYS) and "57890" in printed
    entries = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    found = {one["job"]["way"]: one["result"] for one in entries}
    assert found[names.CERTIFIED]["proof"] == "certified" and found[names.CERTIFIED]["condition_number"] < 51.0
    assert "certified" in excite_report.verdict(entries)
