"""Cholesky factors of block-tridiagonal matrices, many at once, by cyclic reduction.

Every other block is eliminated first, all of them at the same time, which leaves a block-tridiagonal matrix of half the
length. That is a Cholesky factorisation in another order of the blocks, so it is as stable as any; it turns a chain of
W small steps into log2 W large ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_REGULARISATION = 1e-15
"""Relative to the diagonal; a hundred times more with every failure."""


@dataclass(frozen=True)
class _Level:
    """Blocks eliminated together: E of them, between O that stay.

    Attributes:
        inverse: Inverses of their lower Cholesky factors, (S, E, n, n).
        before: Coupling of each block that stays to the one before it, times the inverse factor, (S, O, n, n).
        after: The same for the one after it; zero where there is none.
    """

    inverse: Array
    before: Array
    after: Array


class BlockChain:
    """Factors L of S matrices ``T = L L^T`` of W blocks of size n.

    Args:
        diagonal: Blocks on the diagonal, (S, W, n, n), symmetric.
        below: Blocks from each to the one before, (S, W, n, n); the first does not count.

    Raises:
        LinAlgError: A matrix is not positive definite, nor nearly.
    """

    def __init__(self, diagonal: Array, below: Array):
        self._levels: list[_Level] = []
        while diagonal.shape[1]:
            inverse = np.asarray(np.linalg.inv(_lower(diagonal[:, 0::2])), dtype=np.float64)
            transposed = inverse.transpose(0, 1, 3, 2)
            staying = diagonal[:, 1::2]
            count = staying.shape[1]
            before = below[:, 1::2] @ transposed[:, :count]
            after = np.zeros_like(before)
            links = below[:, 2::2].transpose(0, 1, 3, 2)
            after[:, : links.shape[1]] = links @ transposed[:, 1:]
            self._levels.append(_Level(inverse, before, after))
            diagonal = staying - before @ before.transpose(0, 1, 3, 2) - after @ after.transpose(0, 1, 3, 2)
            below = np.zeros_like(before)
            below[:, 1:] = -before[:, 1:] @ after[:, :-1].transpose(0, 1, 3, 2)

    def forward(self, right: Array) -> Array:
        """Return ``L^-1 r`` for r (S, W, n, k), its blocks in the order of elimination."""
        parts = []
        for level in self._levels:
            done, right = level.inverse @ right[:, 0::2], right[:, 1::2]
            count = right.shape[1]
            right = right - level.before @ done[:, :count]
            following = done[:, 1:]
            right[:, : following.shape[1]] -= level.after[:, : following.shape[1]] @ following
            parts.append(done)
        return np.concatenate(parts, axis=1) if parts else right

    def backward(self, right: Array) -> Array:
        """Return ``L^-T f`` for f (S, W, n, k) in the order of elimination, its blocks in their own order."""
        stop, result = right.shape[1], right[:, :0]
        for level in reversed(self._levels):
            count, staying = level.inverse.shape[1], result
            part = right[:, stop - count : stop].copy()
            stop -= count
            part[:, : staying.shape[1]] -= level.before.transpose(0, 1, 3, 2) @ staying
            following = min(count - 1, staying.shape[1])
            part[:, 1 : 1 + following] -= level.after[:, :following].transpose(0, 1, 3, 2) @ staying[:, :following]
            result = np.empty((right.shape[0], count + staying.shape[1], *right.shape[2:]))
            result[:, 0::2] = level.inverse.transpose(0, 1, 3, 2) @ part
            result[:, 1::2] = staying
        return result


def _lower(blocks: Array) -> Array:
    """Return the lower Cholesky factors of blocks (S, W, n, n), regularised as far as rounding demands."""
    places, share = np.arange(blocks.shape[2]), _REGULARISATION
    size = np.abs(blocks[:, :, places, places])
    while True:
        padded = blocks.copy()
        padded[:, :, places, places] += share * size
        try:
            return np.asarray(np.linalg.cholesky(padded), dtype=np.float64)
        except np.linalg.LinAlgError:
            share *= 100.0
            if share > 1e-3:
                raise
