"""SVA's experiments: their motions, what they find, and the command that repeats them."""

import json

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers import sva
from sysid_ros.papers.names import ARM, COST, LEG, PENDULUM
from sysid_ros.papers.tables import median_interval, share_interval


@pytest.mark.parametrize("experiment", [PENDULUM, LEG, ARM])
def test_motions_are_within_limits_and_their_derivatives_are_right(experiment):
    reference, limits, step = sva.motion_of(experiment), sva.robot_of(experiment).limits, 1e-5
    for t in np.arange(0.05, 8.0, 0.0713):
        q, v, a = reference(t)
        before, after = reference(t - step), reference(t + step)
        np.testing.assert_allclose(v, (after[0] - before[0]) / (2.0 * step), atol=2e-4)
        np.testing.assert_allclose(a, (after[1] - before[1]) / (2.0 * step), atol=2e-3)
        assert np.all(limits.q_lower < q) and np.all(q < limits.q_upper) and np.all(np.abs(v) < limits.v_max)


def test_the_true_robot_is_another_one_inside_its_box():
    robot = sva.robot_of(ARM)
    one, other = sva.true_parameters(robot, 0), sva.true_parameters(robot, 1)
    for theta in (one, other):
        assert robot.theta_box.contains(theta)
    assert not np.allclose(one, other) and np.array_equal(one, sva.true_parameters(robot, 0))
    y = TorqueRegressor(robot).evaluate(*sva.validation_states(robot))
    assert np.abs(y @ (one - robot.theta_nominal)).max() > 1.0


def test_a_planar_link_has_three_effective_parameters():
    """All others have columns of zeros, or those of links without offset across their length."""
    robot = sva.robot_of(PENDULUM)
    y = TorqueRegressor(robot).evaluate(*sva.validation_states(robot)).reshape(-1, robot.theta_nominal.size)
    chosen = sva.planar_columns(robot, False)
    links = y[:, : 10 * robot.n]
    ignored = [k for k in range(10 * robot.n) if k not in chosen and k % 10 != 1]  # 1: first moment across the link
    assert np.abs(links[:, ignored]).max() < 1e-12 * np.abs(links).max()
    theta = robot.theta_nominal
    np.testing.assert_allclose(links @ theta[: 10 * robot.n], y[:, chosen] @ theta[chosen], atol=1e-12)


def test_the_pendulum_is_identified_offline():
    result = sva.run(PENDULUM, seed=3, duration=6.0)
    for name, fit in result["fits"].items():
        assert min(fit["determination"]) > 0.85, name
        assert fit["rank"] < fit["parameters"]  # the paper: the regressor need not have full rank
    assert min(result["fits"]["momentum, with friction"]["validation"]) > 0.98
    assert result["fits"]["acceleration, no friction"]["parameters"] == 6  # three per link, as in Figures 4 and 5
    assert {"three parameters", "with friction", "measured"} <= result["shown"].keys()


@pytest.mark.slow
def test_the_fit_of_the_leg_improves_with_data():
    result = sva.run(LEG, seed=3, duration=8.0)
    for fit in result["fits"].values():
        assert len(fit["t"]) == 24  # 3 Hz
        assert np.min(fit["validation"][-1]) > np.min(result["validation_of_the_guess"])
    assert np.min(result["fits"]["momentum, weights of the box"]["validation"][-1]) > 0.99


def test_the_tree_of_a_humanoid_branches():
    parents = list(sva.tree(44).parents)[1:]
    assert parents[:11] == list(range(11))  # the spine
    assert sorted(k for k in range(1, 45) if parents.count(k) > 1) == [1, 11]  # legs at its foot, arms at its head
    assert sum(k not in parents for k in range(1, 45)) == 4
    assert list(sva.tree(7).parents)[1:] == list(range(7))


@pytest.mark.parametrize("joints", [2, 7, 44])
def test_regressors_of_trees_agree_to_rounding(joints):
    result = sva.run(COST, joints=joints, seed=1, rounds=1)
    assert set(result["difference"]) == {"algorithm_1", "batched"}
    assert max(result["difference"].values()) < 1e-12
    assert min(result["seconds"].values()) > 0.0


@pytest.mark.parametrize("seed", range(4))
def test_algorithm_1_takes_joints_of_several_degrees_of_freedom(seed):
    pin.seed(seed)
    rng, model = np.random.default_rng(seed), pin.Model()
    kinds = [
        pin.JointModelRX(), pin.JointModelPY(), pin.JointModelSpherical(), pin.JointModelFreeFlyer(),
        pin.JointModelPlanar(), pin.JointModelRevoluteUnaligned(np.array([0.6, 0.0, 0.8])),
    ]  # fmt: skip
    for k in range(9):
        joint = model.addJoint(int(rng.integers(k + 1)), kinds[k % len(kinds)], pin.SE3.Random(), f"j{k}")
        model.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    model.gravity.linear = np.array([1.0, -2.0, -9.0])
    q = pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv))
    state = (q, *rng.normal(size=(2, model.nv)))
    expected = pin.computeJointTorqueRegressor(model, model.createData(), *state)
    found = sva.regressor_of(sva.linear_inverse_dynamics(model, state), 9)
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("observation", ["acceleration", "momentum"])
def test_the_gate_replaces_the_wrong_model_of_the_arm(observation):
    """The paper: the buffer of 50 samples at 3 Hz is full after 16 to 17 s, and then the bias falls (Figure 7c)."""
    result = sva.run(ARM, seed=3, duration=24.0, observation=observation)
    assert 16.0 < result["full"] <= result["opened"] < 17.0
    assert np.all(np.abs(result["after"]["bias"]) < 0.2 * np.abs(result["before"]["bias"]))
    assert np.all(np.less(result["after"]["peak_to_peak"], 1.2 * np.array(result["before"]["peak_to_peak"])))
    assert np.all(np.less(result["after"]["rms"], result["before"]["rms"]))


@pytest.mark.slow
def test_the_command_repeats_all_of_it_and_goes_on_from_its_file(tmp_path, capsys):
    words = ["--seeds", "1", "--results", str(tmp_path), "--scale", "0.09"]
    for experiment in (PENDULUM, LEG, ARM):
        assert door.main(["papers", "sva", *words, "--experiment", experiment]) == ExitStatus.OK
    printed = capsys.readouterr().out
    for words_of_a_title in ("Double pendulum offline", "Leg online"):
        assert words_of_a_title in printed
    for name in ("sva_figure_4", "sva_figure_5", "sva_figure_6", "sva_figure_7_momentum"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    text = (tmp_path / "runs.jsonl").read_text()
    assert len([json.loads(line) for line in text.splitlines()]) == 4
    assert door.main(["papers", "sva", *words, "--experiment", LEG]) == ExitStatus.OK
    assert (tmp_path / "runs.jsonl").read_text() == text


def test_confidence_intervals():
    assert share_interval(0, 10) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert share_interval(10, 10) == (pytest.approx(0.6915, abs=1e-4), 1.0)
    assert share_interval(5, 10) == (pytest.approx(0.1871, abs=1e-4), pytest.approx(0.8129, abs=1e-4))
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    values = np.arange(1.0, 11.0)
    assert median_interval(values) == (2.0, 9.0)  # the exact 95 % interval of ten: the 2nd and the 9th
