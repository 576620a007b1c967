"""Convolution bounds: kernels applied to signals whose magnitude is bounded by interval (step 4 of the proof)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

Array = NDArray[np.float64]

_NEAR = 10
"""Number of youngest bins in which the change of the inertia is followed bin by bin."""


def bound_convolution(kernel: Array, signal: Array) -> Array:
    """Bound the convolution of a kernel with a signal.

    Seen from interval i, bin b of the kernel reaches into the intervals i - b and i - b - 1; the larger one counts.

    Args:
        kernel: By bins of age, (B,), not negative; or several, (B, K).
        signal: Largest magnitude in each interval, (I,) or (I, n); continued backwards with its first value.

    Returns:
        The bound in each interval, of the shape of the signal; with several kernels of that shape and then (K,).
    """
    return _convolve(kernel, _with_previous(signal))


def bound_change_convolution(kernel: Array, kernel_age: Array, rate: Array, signal: Array, width: float) -> Array:
    """Bound the same convolution where the signal acts in proportion to a quantity's change since then.

    Args:
        kernel: By bins of age, (B,) or (B, K).
        kernel_age: The kernel times the age, summed over each bin, of the kernel's shape [s].
        rate: Largest rate of the change in each interval, (I,) [1/s].
        signal: Largest magnitude in each interval, (I,).
        width: Width of a bin and of an interval [s].

    Returns:
        The bound in each interval, (I,) or (I, K).
    """
    near = min(_NEAR, len(kernel))
    several = kernel.reshape(len(kernel), -1)
    several_age = kernel_age.reshape(several.shape)
    signal = _with_previous(signal)
    # For the youngest bins: the change is at most the largest rate since then, times the age.
    ages = np.arange(near)[:, None]
    since = np.maximum.accumulate(np.concatenate([_with_previous(rate)[None], _at(rate, ages[:-1] + 2)]), axis=0)
    total = (since * _at(signal, ages)).T @ several_age[:near]
    # For older bins: the integral of the rate, from the start of the older interval to the end of this one.
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
    bound: Array = total.reshape(len(signal), *kernel.shape[1:])
    return bound


def _with_previous(signal: Array) -> Array:
    return np.maximum(signal, _delayed(signal, 1))


def _delayed(signal: Array, count: int) -> Array:
    if count == 0:
        return signal
    head = np.repeat(signal[:1], min(count, len(signal)), axis=0)
    return np.concatenate([head, signal[: max(0, len(signal) - count)]])


def _at(signal: Array, ages: NDArray[np.intp]) -> Array:
    """Return the signal at several ages (A, 1), (A, I), continued backwards with its first value."""
    delayed: Array = signal[np.maximum(np.arange(len(signal)) - ages, 0)]
    return delayed


def _convolve(kernel: Array, signal: Array) -> Array:
    padded = np.concatenate([np.repeat(signal[:1], len(kernel), axis=0), signal])
    result: Array = _valid(kernel.reshape(len(kernel), -1), padded.reshape(len(padded), -1))
    return result.reshape(*signal.shape, *kernel.shape[1:])


def _valid(kernel: Array, padded: Array) -> Array:
    """Return the sums ``kernel[b] padded[i - b]``, (P - B, n, K), for all i >= B; kernel (B, K), padded (P, n)."""
    length = next_fast_len(len(padded), real=True)  # wrapped-around parts fall on the entries cut off
    spectrum = rfft(padded.T, length)[:, None] * rfft(kernel.T, length)
    sums: Array = irfft(spectrum, length)[..., len(kernel) : len(padded)].transpose(2, 0, 1)
    return sums
