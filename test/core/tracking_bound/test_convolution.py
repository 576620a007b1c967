"""Sums over the past against plain loops."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.tracking_bound.convolution import bound_change_convolution, bound_convolution

WIDTH = 0.005


def test_bound_convolution_bounds_every_way_the_signal_can_fill_its_intervals():
    rng = np.random.default_rng(0)
    kernel, signal = rng.uniform(size=40), rng.uniform(size=100)
    bound = bound_convolution(kernel, signal)
    for i in range(100):
        total = sum(k * max(signal[max(i - b, 0)], signal[max(i - b - 1, 0)]) for b, k in enumerate(kernel))
        np.testing.assert_allclose(bound[i], total, rtol=1e-12)
    several = bound_convolution(kernel, np.stack([signal, 2.0 * signal], axis=1))
    np.testing.assert_allclose(several, np.stack([bound, 2.0 * bound], axis=1), rtol=1e-12)


def test_bound_convolution_of_a_short_signal_sees_its_beginning_for_ever():
    np.testing.assert_allclose(bound_convolution(np.ones(30), np.array([2.0, 0.0])), [60.0, 60.0])


def test_bound_change_convolution_bounds_the_true_integral():
    """A kernel times what a rate has accumulated since, against fine sums at the worst times in each interval."""
    rng = np.random.default_rng(1)
    fine, bins, intervals = 20, 60, 90
    weights = np.abs(rng.normal(size=bins * fine)) * np.exp(-np.arange(bins * fine) / (10.0 * fine))
    ages = (np.arange(bins * fine) + 1) * WIDTH / fine
    kernel = weights.reshape(bins, fine).sum(axis=1)
    kernel_age = (weights * ages).reshape(bins, fine).sum(axis=1)
    rate, signal = rng.uniform(0.0, 3.0, size=intervals), rng.uniform(size=intervals)
    bound = bound_change_convolution(kernel, kernel_age, rate, signal, WIDTH)
    fine_rate, fine_signal = np.repeat(rate, fine), np.repeat(signal, fine)
    fine_change = np.concatenate([[0.0], np.cumsum(fine_rate)]) * WIDTH / fine

    def at(values: np.ndarray, index: int, slope: float = 0.0) -> float:
        return values[index] if index >= 0 else values[0] + slope * index * WIDTH / fine

    reached = np.zeros(intervals)
    for i in range(intervals):
        for now in (i * fine, i * fine + fine // 2, (i + 1) * fine - 1):
            total = sum(
                w * (at(fine_change, now + 1) - at(fine_change, now - age, rate[0])) * at(fine_signal, now - age)
                for age, w in enumerate(weights)
            )
            reached[i] = max(reached[i], total)
    assert np.all(reached <= bound)
    assert reached.max() > 0.5 * bound.max()


def test_bound_change_convolution_of_a_constant_rate_is_the_mean_age():
    kernel = np.array([1.0] + [0.0] * 19 + [2.0])
    kernel_age = kernel * (np.arange(21) + 1.0) * WIDTH
    bound = bound_change_convolution(kernel, kernel_age, np.full(50, 4.0), np.ones(50), WIDTH)
    least = 4.0 * kernel_age.sum()
    assert np.all(bound >= least - 1e-12)
    np.testing.assert_allclose(bound, least, rtol=0.1)
