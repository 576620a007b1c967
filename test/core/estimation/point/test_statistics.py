"""The statistical interval: how often it holds the truth, correlated errors, too few windows."""

import numpy as np
import pytest

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.point.statistics import LEAST_WINDOWS, compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

SETTINGS = EstimatorSettings(bound_tolerance=0.05)


def rows_of(tools, robot, seed, seconds=3.0, shift=0.0):
    """Rows of a recording, the truth, and the estimate; ``shift``: torque error of the last joints that lasts [Nm]."""
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
    motion = tools.FourierMotion(robot, seed)
    exact = tools.record(robot, theta, payload, motion, seconds, rate=500.0)
    wave = shift * np.sin(2.0 * np.pi * exact.seconds[:, None] / 0.7)
    rows = []
    estimator = StreamingEstimator(robot, SETTINGS, on_rows=rows.append)
    estimator.add(tools.measure(robot, exact.q, exact.v, exact.tau + wave, rng, period=0.002))
    return rows, payload, estimator.estimate()


@pytest.mark.slow
def test_it_holds_the_truth_about_as_often_as_it_says_and_is_narrower(tools, robot):
    held, widths = [], []
    for seed in range(10):
        rows, payload, estimate = rows_of(tools, robot, seed)
        found = compute_statistical_interval(robot, SETTINGS, rows)
        assert found.windows == len(rows) and found.confidence == 0.95 and found.lags >= 2
        held.append((found.lower <= payload) & (payload <= found.upper))
        widths.append((found.upper - found.lower) / (estimate.upper - estimate.lower))
    assert np.mean(held) >= 0.9
    assert np.median(widths) < 0.8


@pytest.mark.slow
def test_errors_that_last_widen_it(tools, robot):
    plain, wavy = (rows_of(tools, robot, 3, shift=shift)[0] for shift in (0.0, 0.05))
    narrow, wide = (compute_statistical_interval(robot, SETTINGS, rows) for rows in (plain, wavy))
    assert np.all(wide.standard_error >= 0.99 * narrow.standard_error)
    assert np.median(wide.standard_error / narrow.standard_error) > 1.02


@pytest.mark.slow
def test_few_windows_give_none(tools, robot):
    rows, _, _ = rows_of(tools, robot, 0)
    assert compute_statistical_interval(robot, SETTINGS, rows[: LEAST_WINDOWS - 1]) is None
    assert compute_statistical_interval(robot, SETTINGS, []) is None
