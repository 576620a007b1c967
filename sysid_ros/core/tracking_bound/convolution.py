"""Sums over the past: kernels applied to signals that are known by interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

Array = NDArray[np.float64]

_NEAR = 10
"""Youngest bins in which the change of the inertia is followed bin by bin."""


def recall(kernel: Array, signal: Array) -> Array:
    """Bounds the sum over all ages of a kernel times a signal.

    The age of what acts at some time of interval i from bin b of the kernel reaches into the intervals i - b and
    i - b - 1, of which the larger counts.

    Args:
        kernel: By bins of age, (B,), not negative; or several, (B, K).
        signal: Largest magnitude in each interval, (I,) or (I, n); before the first interval as in it.

    Returns:
        The bound in each interval, of the shape of the signal; with several kernels of that shape and then (K,).
    """
    return _convolve(kernel, _with_previous(signal))


def recall_change(kernel: Array, kernel_age: Array, rate: Array, signal: Array, width: float) -> Array:
    """The same for a signal that acts in proportion to how far something has changed since.

    Args:
        kernel: By bins of age, (B,) or (B, K).
        kernel_age: The kernel times the age, summed over each bin, of the same shape [s].
        rate: Largest rate of the change in each interval, (I,) [1/s].
        signal: Largest magnitude in each interval, (I,).
        width: Width of a bin and of an interval [s].
    """
    near = min(_NEAR, len(kernel))
    several = kernel.reshape(len(kernel), -1)
    several_age = kernel_age.reshape(several.shape)
    signal = _with_previous(signal)
    # At the youngest ages the change is at most the largest rate since, times the age.
    ages = np.arange(near)[:, None]
    since = np.maximum.accumulate(np.concatenate([_with_previous(rate)[None], _at(rate, ages[:-1] + 2)]), axis=0)
    total = (since * _at(signal, ages)).T @ several_age[:near]
    # At larger ages: the integral of the rate, from the beginning of the older interval to the end of this one.
    change = width * np.cumsum(rate)
    until = change[0] - rate[0] * width * np.arange(near + 2, 0, -1)
    older = np.concatenate([until, change])[: len(rate)]  # change[i - near - 2]
    far = several[near:]
    if len(far):
        count = len(far)
        start = _delayed(signal, near)
        padded_signal = np.concatenate([np.full(count, start[0]), start])
        padded_older = np.concatenate([older[0] - rate[0] * width * np.arange(count, 0, -1), older])
        both = np.stack([padded_signal, padded_signal * padded_older], axis=1)
        sums = _valid(far, both)
        total += change[:, None] * sums[:, 0] - sums[:, 1]
    return total.reshape(len(signal), *kernel.shape[1:])


def _with_previous(signal: Array) -> Array:
    return np.maximum(signal, _delayed(signal, 1))


def _delayed(signal: Array, count: int) -> Array:
    """The signal ``count`` intervals later; before its beginning it is as there."""
    if count == 0:
        return signal
    head = np.repeat(signal[:1], min(count, len(signal)), axis=0)
    return np.concatenate([head, signal[: max(0, len(signal) - count)]])


def _at(signal: Array, ages: NDArray[np.intp]) -> Array:
    """The signal as it was at several ages (A, 1), (A, I); before its beginning it is as there."""
    return signal[np.maximum(np.arange(len(signal)) - ages, 0)]


def _convolve(kernel: Array, signal: Array) -> Array:
    padded = np.concatenate([np.repeat(signal[:1], len(kernel), axis=0), signal])
    result = _valid(kernel.reshape(len(kernel), -1), padded.reshape(len(padded), -1))
    return result.reshape(*signal.shape, *kernel.shape[1:])


def _valid(kernel: Array, padded: Array) -> Array:
    """Sums ``kernel[b] padded[i - b]`` for the entries after the first ``len(kernel)`` of ``padded``.

    Args:
        kernel: (B, K).
        padded: (P, n).

    Returns:
        (P - B, n, K).
    """
    length = next_fast_len(len(padded), real=True)  # what wraps around falls on the entries left out
    spectrum = rfft(padded.T, length)[:, None] * rfft(kernel.T, length)
    return irfft(spectrum, length)[..., len(kernel) : len(padded)].transpose(2, 0, 1)
