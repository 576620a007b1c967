import numpy as np
import pytest

from sysid_ros.core.estimation.offline import estimate_from_samples
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock

FAST = EstimatorSettings(update_windows=5, bound_tolerance=1e-3)


def test_residuals_of_perfect_data(robot, tools, dumbbell):
    block = tools.record(robot, robot.theta_nominal, dumbbell, tools.FourierMotion(robot, 1), 1.0)
    estimate, history, residuals = estimate_from_samples(robot, [block], FAST)
    assert estimate.number_of_windows == 10 and len(history) == 2
    np.testing.assert_allclose(residuals.times, np.arange(0.05, 1.0, 0.1))
    assert residuals.measured.shape == residuals.explained.shape == residuals.allowed.shape == (10, 7)
    assert np.all(residuals.rms < 0.1) and np.abs(residuals.measured).max() > 3.0
    assert np.all(np.abs(residuals.measured - residuals.explained) < residuals.allowed)


def test_no_data_give_the_prior(robot):
    estimate, history, residuals = estimate_from_samples(robot, [SampleBlock.empty(7)], FAST)
    assert estimate.number_of_windows == 0 and history == [] and residuals.times.size == 0


def test_an_alarm_leaves_the_measured_torques_for_the_plot(robot, tools, dumbbell):
    block = tools.record(robot, robot.theta_nominal, dumbbell, tools.FourierMotion(robot, 1), 1.0)
    tau = block.tau.copy()
    tau[501:] += 30.0  # a sample is the mean torque since the one before
    notices = []
    broken = SampleBlock(block.stamps, block.sequence, block.q, block.v, tau)
    estimate, _, residuals = estimate_from_samples(robot, [broken], FAST, on_notice=notices.append)
    assert not estimate.is_consistent and len(notices) == 1
    assert residuals.measured.shape == (5, 7) and np.all(np.isnan(residuals.explained))


@pytest.mark.parametrize("values", [np.zeros(10), np.arange(10.0)])
def test_an_estimate_is_frozen_and_answers_questions(robot, values):
    from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate

    facts = ("left_inverse", "", True, True, None, "payload", "joint_7")
    shares = {"velocity": np.ones(10)}
    estimate = ParameterEstimate(values, values - 1, values + 2, *facts, 1, 0.1, 2.0, shares)
    np.testing.assert_array_equal(estimate.radius, np.full(10, 1.5))
    assert estimate.contains(values + 2) and not estimate.contains(values + 2.1)
    with pytest.raises(ValueError, match="read-only"):
        estimate.lower[0] = 3.0
    with pytest.raises(ValueError, match="read-only"):
        estimate.error_budget["velocity"][0] = 3.0
