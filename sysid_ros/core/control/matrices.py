"""Functions of many small matrices at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDING = 1e-9
"""Relative allowance with which a matrix is left out because another one is certainly larger."""
_POWERS = (1, 2, 4)
"""Powers of matrices of which traces are compared."""


def congruence(factor: Array, matrices: Array) -> Array:
    """``F X F^T`` of X (S, ..., n, n) with F (S, n, n)."""
    count, n, _ = factor.shape
    right = matrices.reshape(count, -1, n) @ np.swapaxes(factor, 1, 2)  # all rows in one product
    return factor.reshape(count, *(1,) * (matrices.ndim - 3), n, n) @ right.reshape(matrices.shape)


def magnitude(matrices: Array) -> Array:
    """Matrix absolute values ``(X^2)^1/2`` of symmetric matrices (..., n, n)."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.abs(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def square_root(matrices: Array) -> Array:
    """Square roots of positive semidefinite matrices (..., n, n)."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def largest_eigenvalue(matrices: Array) -> Array:
    """Largest eigenvalues of symmetric matrices (..., n, n)."""
    return np.linalg.eigvalsh(matrices)[..., -1]


def largest_of_any(matrices: Array) -> Array:
    """Largest eigenvalue of any of K positive semidefinite matrices, (S,), of (S, K, n, n).

    With powers p that is at most ``(tr X^2p)^1/2p`` and at least ``(tr X^2p / tr X^p)^1/p``, which leaves few matrices
    to be looked at.
    """
    count, several, n, _ = matrices.shape
    all_traces = np.einsum("skaa->sk", matrices)
    scale = np.maximum(all_traces.max(axis=1), 1e-300)  # powers of what is much smaller may vanish
    sample, which = np.divmod(np.arange(count * several), several)
    powers = matrices.reshape(-1, n, n) / scale[sample, None, None]
    traces = all_traces.ravel() / scale[sample]
    for exponent in _POWERS:
        squares = np.einsum("kab,kab->k", powers, powers)
        least = np.zeros(count)
        np.maximum.at(least, sample, (squares / np.maximum(traces, 1e-300)) ** (1.0 / exponent))
        kept = (squares > 0.0) & (squares ** (0.5 / exponent) >= (1.0 - _ROUNDING) * least[sample])
        sample, which, traces = sample[kept], which[kept], squares[kept]
        if exponent < _POWERS[-1]:
            powers = powers[kept] @ powers[kept]
    result = np.zeros(count)
    np.maximum.at(result, sample, largest_eigenvalue(matrices[sample, which]))
    return result
