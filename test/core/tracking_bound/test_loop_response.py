"""The sampled closed-loop responses against a loop simulated step by step with other code."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.tracking_bound import loop_response
from sysid_ros.core.tracking_bound.loop_response import loop_kernels
from sysid_ros.core.tracking_bound.scalar_loop import (
    ACCELERATION,
    BIN,
    EARLY,
    FEEDBACK,
    LATE,
    POSITION,
    STEP,
    VELOCITY,
    VELOCITY_ERROR,
    BoundNotAvailable,
    Slack,
    bound_integral,
    count_samples,
    respond,
)

SETTINGS = RobustSettings(bandwidth=120.0, position_gain=9.0, integral_gain=6.0)
FINE = 10  # simulation steps per sampling period


def simulate(settings, ratio, disturbance, velocity_error=0.0, position_error=0.0, delay=None, is_difference=False):
    """Drives ``E dde + f = a``; returns e, de, f and dde at the samples.

    ``disturbance`` is constant over 1/FINE of a period, the errors are constant over a period.
    """
    c, k, period = settings.bandwidth, settings.position_gain, settings.period
    delay = settings.delay if delay is None else delay
    h, late = period / FINE, round(delay / period * FINE)
    e = de = eta = before = 0.0
    held = []
    rows = []
    steps = len(disturbance) // FINE
    velocity_error, position_error = (np.broadcast_to(x, steps) for x in (velocity_error, position_error))
    for sample in range(steps):
        measured_e, measured_de = e + position_error[sample], de + velocity_error[sample]
        if is_difference:
            measured_de = (measured_e - before) / period + velocity_error[sample]
        before = measured_e
        r = measured_de + k * measured_e
        f = k * measured_de + c * r + eta
        eta += period * settings.integral_gain * c * r
        held.append(f)
        for fine in range(FINE):
            force = f if fine >= late else (held[-2] if len(held) > 1 else 0.0)
            a = disturbance[sample * FINE + fine]
            dde = (a - force) / ratio
            if fine == 0:
                rows.append((e, de, f, dde))
            e, de = e + h * de + 0.5 * h * h * dde, de + h * dde
    return np.array(rows)


def weights(settings, ratio, output, count, **conditions):
    """Response of one output to an impulse, by age, from the responses to steps."""
    step = simulate(settings, ratio, np.ones(count * FINE), **conditions)[:, output]
    return np.diff(step)


@pytest.mark.parametrize(("delay", "is_difference"), [(0.0, False), (1e-3, False), (0.0, True), (1e-3, True)])
def test_worst_disturbance_reaches_the_kernel_of_a_known_inertia(delay, is_difference):
    settings = RobustSettings(120.0, 9.0, 6.0, delay=delay)
    kernel = loop_kernels(settings, (1.0, 1.0), 0.0, is_difference=is_difference).residual
    count = 1800
    for output in (POSITION, VELOCITY):
        # The sign of the impulse response, backwards in time, is the worst disturbance there is.
        sign = np.sign(weights(settings, 1.0, output, count, is_difference=is_difference))[::-1]
        reached = simulate(settings, 1.0, np.repeat(sign, FINE), is_difference=is_difference)[:, output].max()
        bound = kernel.center[:, output].sum()
        assert reached <= bound
        assert reached > 0.93 * bound


def test_where_only_positions_are_measured_the_response_has_no_sampling_jumps():
    """Positions are continuous, so is the feedback computed from them: the jumps are rounding errors."""
    jumps, others = (
        loop_kernels(SETTINGS, (0.5, 3.0), 0.0, is_difference=one).sampling_jumps.sum(axis=0) for one in (True, False)
    )
    assert np.all(jumps < 1e-10 * others)


def test_no_disturbance_exceeds_the_largest_kernel():
    rng = np.random.default_rng(0)
    lower, upper = 0.5, 3.0
    kernels = loop_kernels(SETTINGS, (lower, upper), 0.0)
    largest = kernels.residual.largest.sum(axis=0)
    reached = np.zeros(4)
    for _ in range(12):
        ratio, delay = rng.uniform(lower, upper), rng.choice([0.0, 0.3e-3, 0.5e-3, 1e-3])
        noise = np.sign(np.convolve(rng.normal(size=20000), np.ones(rng.integers(1, 800)), mode="same"))
        rows = np.abs(simulate(SETTINGS, ratio, noise, delay=delay)).max(axis=0)
        rows[FEEDBACK] = 0.0  # it has to balance the disturbance, see below
        reached = np.maximum(reached, rows)
    assert np.all(reached <= largest)
    assert reached[VELOCITY] > 0.3 * largest[VELOCITY]
    assert reached[ACCELERATION] > 0.3 * largest[ACCELERATION]


def shares_of_slack(settings, is_difference, part, rng, count=12):
    """By how much random loops differ from straight lines between their neighbours, as a share of the slack."""
    ages = loop_response._Ages(settings, is_difference, part)
    nodes = list(range(-24, 60, loop_response._STRIDE))
    delays = np.linspace(0.0, settings.delay, part.delays)
    shares = np.zeros((count, 8))
    for index in range(count):
        first, cell = int(rng.integers(len(nodes) - 1)), int(rng.integers(part.delays - 1))
        pair = nodes[first : first + 2]
        along, across = rng.uniform(0.1, 0.9, 2)
        inverse = (1.0 - along) * loop_response._FINE ** -pair[0] + along * loop_response._FINE ** -pair[1]
        delay = (1.0 - across) * delays[cell] + across * delays[cell + 1]
        ratios, end = np.array([1.0 / inverse]), part.end or count_samples(settings)
        alone = respond(settings, ratios, delay, is_difference, end + 1)
        own = loop_response._list_kinds(alone, ratios, settings.period)[0, :, part.begin : end]
        lines = [(1.0 - across) * x[cell] + across * x[cell + 1] for x in ages.responses(pair)]
        away = np.abs(own - (1.0 - along) * lines[0] - along * lines[1])
        slack = np.max([node.slack for node in ages.nodes(pair).values()], axis=0)
        rounding = 1e-11 * np.maximum(np.abs(own), np.abs(own[LATE])).max(axis=1, keepdims=True) + 1e-15
        shares[index] = (away / (slack + rounding)).max(axis=(1, 2))
    return shares


PARTS = [
    (is_difference, part) for is_difference in (False, True) for part in loop_response._AGES
]  # many delays at first, and fewer later


@pytest.mark.parametrize(("is_difference", "part"), PARTS)
@pytest.mark.parametrize("settings", [RobustSettings(), RobustSettings(100.0, period=2e-3, delay=1.3e-3)])
def test_loops_between_those_evaluated_are_within_the_slack(settings, is_difference, part):
    """Whatever the inertia ratio and the delay; and the slack is not many times too large."""
    shares = shares_of_slack(settings, is_difference, part, np.random.default_rng(0))
    assert shares.max() <= 1.0
    assert np.all(shares[:, [LATE, EARLY, STEP, VELOCITY_ERROR]].max(axis=0) > 0.1)


def test_a_slack_that_is_too_small_is_caught(monkeypatch):
    """The check above sees bounds of second derivatives that are wrong."""
    original = loop_response.bound_slack

    def wrong(*arguments):
        slack = original(*arguments)
        return Slack(0.1 * slack.ratio, 0.1 * slack.delay, slack.left)

    monkeypatch.setattr(loop_response, "bound_slack", wrong)
    assert shares_of_slack(RobustSettings(), False, loop_response._AGES[0], np.random.default_rng(0)).max() > 1.0


def test_the_slack_costs_little():
    """Ranges of responses with it are hardly wider than without."""
    powers = list(range(-16, 40, 4))
    for part in loop_response._AGES:
        ages = loop_response._Ages(RobustSettings(), False, part)
        plain = loop_response._Ages(RobustSettings(), False, part)
        plain._nodes = {at: node._replace(slack=0.0 * node.slack) for at, node in ages.nodes(powers).items()}
        wide, narrow = ages.bin(powers).residual, plain.bin(powers).residual
        assert np.all(wide[2].sum(axis=0) <= 1.02 * narrow[2].sum(axis=0))


@pytest.mark.parametrize("is_difference", [False, True])
def test_what_is_left_of_an_older_state_is_covered(is_difference):
    """After a horizon without any input, whatever there was before it."""
    settings, ratios = RobustSettings(), (0.6, 2.5)
    kernels = loop_kernels(settings, ratios, 0.0, is_difference=is_difference)
    rng, last = np.random.default_rng(4), count_samples(settings)
    shares = []
    for _ in range(8):
        ratio, delay = rng.uniform(*ratios), rng.choice([0.0, 0.3e-3, 0.7e-3, 1e-3])
        before = np.sign(np.convolve(rng.normal(size=400 * FINE), np.ones(rng.integers(1, 3000)), mode="same"))
        rows = simulate(
            settings,
            ratio,
            np.concatenate([before, np.zeros((last + 1) * FINE)]),
            delay=delay,
            is_difference=is_difference,
        )
        position, velocity, feedback = (np.abs(rows[398:401, x]).max() for x in (POSITION, VELOCITY, FEEDBACK))
        integral = bound_integral(settings, feedback, position, velocity)
        covered = kernels.left_over(position, velocity, integral, feedback, 0.0)
        shares.append(np.abs(rows[400 + last]) / covered)
    assert np.max(shares) <= 1.0
    assert np.max(shares, axis=0).min() > 0.01


def test_a_loop_outside_the_interval_is_not_covered():
    largest = loop_kernels(SETTINGS, (0.9, 1.1), 0.0).residual.largest.sum(axis=0)
    worst = np.repeat(np.sign(weights(SETTINGS, 5.0, POSITION, 2500))[::-1], FINE)
    assert np.abs(simulate(SETTINGS, 5.0, worst)[:, POSITION]).max() > largest[POSITION]


def test_deviation_is_half_of_the_largest_difference_of_two_loops():
    """Two loops differ by at most twice the deviation; for the worst disturbance two of them do."""
    kernel = loop_kernels(SETTINGS, (0.7, 3.0), 0.0).residual
    limits = 2.0 * kernel.deviation.sum(axis=0)
    count = 1500
    steps = {ratio: simulate(SETTINGS, ratio, np.ones(count * FINE)) for ratio in (0.7, 1.0, 1.7, 3.0)}
    reached = np.zeros(4)
    for one, other in combinations(steps, 2):  # exchanging the two only changes the sign
        for output in (POSITION, VELOCITY, FEEDBACK):
            apart = np.diff(steps[one][:, output] - steps[other][:, output])
            worst = np.repeat(np.sign(apart)[::-1], FINE)
            difference = simulate(SETTINGS, one, worst) - simulate(SETTINGS, other, worst)
            reached = np.maximum(reached, np.abs(difference).max(axis=0))
    assert np.all(reached[:3] <= limits[:3])
    assert np.all(reached[:3] > 0.85 * limits[:3])


def test_center_and_deviation_bound_every_loop_in_every_mixture_of_two_directions():
    """Two joints whose inertia is a turned mixture of two ratios, and disturbances of both: each joint on its own."""
    rng = np.random.default_rng(1)
    kernel = loop_kernels(SETTINGS, (0.7, 3.0), 0.0).residual
    center, deviation = kernel.center.sum(axis=0), kernel.deviation.sum(axis=0)
    reached = np.zeros(3)
    for ratios in ((0.7, 3.0), (0.7, 1.2), (1.2, 3.0)):
        for angle in (0.2, 0.5, 0.25 * np.pi):
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            noise = np.sign(np.array([np.convolve(rng.normal(size=15000), np.ones(w), mode="same") for w in (40, 300)]))
            modes = np.stack([simulate(SETTINGS, r, d) for r, d in zip(ratios, turn.T @ noise, strict=True)])
            joints = np.einsum("ij,jto->ito", turn, modes)
            limits = center + deviation * np.linalg.norm([1.0, 1.0])
            largest = np.abs(joints).max(axis=(0, 1))[:2]
            assert np.all(largest <= limits[:2])
            reached[:2] = np.maximum(reached[:2], largest / limits[:2])
    assert reached[:2].min() > 0.3


def test_slow_disturbance_is_suppressed_as_the_smooth_kernel_says():
    kernels = loop_kernels(SETTINGS, (0.8, 1.3), 0.0)
    time = np.arange(40000) * SETTINGS.period / FINE
    for ratio in (0.8, 1.0, 1.3):
        # It oscillates from the beginning of time: what is before is cut off where it has its mean value.
        rows = simulate(SETTINGS, ratio, np.sin(3.0 * time))
        settled = rows[2000:]
        settled[:, FEEDBACK] -= np.sin(3.0 * time[::FINE])[2000:]
        assert np.all(np.abs(settled).max(axis=0) <= 3.0 * kernels.smooth.largest.sum(axis=0))
        assert np.abs(settled[:, POSITION]).max() > 0.3 * 3.0 * kernels.smooth.largest[:, POSITION].sum()


def test_step_response():
    kernels = loop_kernels(SETTINGS, (1.0, 1.0), 0.0)
    rows = simulate(SETTINGS, 1.0, np.ones(20000))
    rows[:, FEEDBACK] -= 1.0
    bins = np.abs(rows[: len(rows) // BIN * BIN]).reshape(-1, BIN, 4).max(axis=1)
    count = min(len(bins), len(kernels.step.center))
    expected = kernels.step.largest[:count, [POSITION, VELOCITY]]
    assert np.all(bins[:count, [POSITION, VELOCITY]] <= expected + 1e-12)
    np.testing.assert_allclose(bins[:count, POSITION].max(), expected[:, 0].max(), rtol=0.06)


@pytest.mark.parametrize("is_difference", [False, True])
@pytest.mark.parametrize("kind", ["velocity_error", "position_error"])
def test_sensor_errors(kind, is_difference):
    rng = np.random.default_rng(2)
    kernel = getattr(loop_kernels(SETTINGS, (0.6, 1.8), 0.0, is_difference=is_difference), kind)
    for ratio in (0.6, 1.0, 1.8):
        reached = np.zeros(4)
        for width in (1, 2, 5, 40):
            error = np.sign(np.convolve(rng.normal(size=1500), np.ones(width), mode="same"))
            rows = simulate(SETTINGS, ratio, np.zeros(1500 * FINE), is_difference=is_difference, **{kind: error})
            reached = np.maximum(reached, np.abs(rows).max(axis=0))
        assert np.all(reached[:3] <= kernel.largest[:3])
        assert reached[FEEDBACK] > 0.3 * kernel.largest[FEEDBACK]
    assert np.all(kernel.largest <= (1.0 + 1e-12) * (kernel.center + kernel.deviation))


def test_errors_of_successive_differences_cancel():
    """The same errors of positions as velocities that are wrong on their own: the bound must see the difference."""
    resolution = 1e-6
    kernels = loop_kernels(SETTINGS, (0.6, 1.8), 0.0, is_difference=True)
    plain = loop_kernels(SETTINGS, (0.6, 1.8), 0.0)
    apart = plain.velocity_error.largest * 2.0 * resolution / SETTINGS.period
    together = kernels.position_error.largest * resolution
    assert np.all(together[[POSITION, VELOCITY]] < 0.3 * apart[[POSITION, VELOCITY]])
    # The worst errors of one loop, found from its own response, reach the bound.
    error = np.zeros(1500)
    error[0] = 1.0
    known = loop_kernels(SETTINGS, (1.0, 1.0), 0.0, is_difference=True).position_error.center
    for output in (POSITION, VELOCITY, FEEDBACK):
        response = simulate(SETTINGS, 1.0, np.zeros(1500 * FINE), position_error=error, is_difference=True)[:, output]
        worst = np.sign(response)[::-1]
        reached = simulate(SETTINGS, 1.0, np.zeros(1500 * FINE), position_error=worst, is_difference=True)[:, output]
        assert 0.95 * known[output] < np.abs(reached).max() <= known[output]


def test_growth_weights_older_inputs():
    plain, grown = (loop_kernels(SETTINGS, (0.8, 1.2), growth) for growth in (0.0, 1.0))
    assert np.all(grown.residual.deviation >= plain.residual.deviation)
    ages = plain.bin * (np.arange(len(plain.variation)) + 1.0)
    assert np.all(grown.residual.deviation <= np.exp(ages)[:, None] * plain.residual.deviation * 1.0001)
    np.testing.assert_array_equal(grown.residual.center, plain.residual.center)


def test_an_unstable_loop_has_no_bound():
    with pytest.raises(BoundNotAvailable, match=r"unstable where the true inertia is 0.1\d times the nominal one"):
        loop_kernels(RobustSettings(bandwidth=150.0), (0.1, 1.0), 0.0)
    with pytest.raises(BoundNotAvailable, match="smallest possible inertia is not positive"):
        loop_kernels(RobustSettings(), (-0.2, 1.0), 0.0)
    with pytest.raises(BoundNotAvailable, match="disturbances decay too slowly"):
        loop_kernels(RobustSettings(), (0.5, 1.0), 20.0)
