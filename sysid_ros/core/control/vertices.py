"""Largest values over the vertices of the payload's set of what is linear in the parameters.

All vertices share the arm; they differ in the ten parameters of the last body only. With ``X_k = X + sum_l o_kl X_l``
for offsets o_k of vertex k, products ``X_k X_k^T`` are linear in the products of the entries of ``(1, o_k)``, so the
products of the matrices are formed once and not for each of up to some hundred vertices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.matrices import largest_of_any

Array = NDArray[np.float64]


class Vertices:
    """Points about a center.

    Args:
        offsets: Differences to the center, (K, 10).
    """

    def __init__(self, offsets: Array):
        self._used = np.flatnonzero(np.any(offsets != 0.0, axis=0))
        self._offsets = offsets[:, self._used]
        factors = np.column_stack([np.ones(len(offsets)), self._offsets])
        self._rows, self._columns = np.triu_indices(factors.shape[1])
        self._products = factors[:, self._rows] * factors[:, self._columns]  # (K, P (P + 1) / 2)

    def largest_norm(self, center: Array, parts: Array) -> Array:
        """Bounds the norm of ``sum_x xi_x X_x`` over ``|xi| <= 1`` by that of ``(sum_x X_x X_x^T)^1/2``.

        Of a single matrix, which makes it one of a single x, that is its largest singular value.

        Args:
            center: X of the center, (S, x, n, n).
            parts: X by parameter of the last body, (S, 10, x, n, n).

        Returns:
            The largest of any vertex, (S,).
        """
        count, _, n, _ = center.shape
        # As (S, l, a, x b), so that a product sums over x.
        several = np.concatenate([center[:, None], parts[:, self._used]], axis=1).transpose(0, 1, 3, 2, 4)
        flat = several.reshape(count, several.shape[1] * n, -1)
        products = (flat @ np.swapaxes(flat, 1, 2)).reshape(count, several.shape[1], n, several.shape[1], n)
        squares = self._combine(products.swapaxes(2, 3).reshape(count, several.shape[1], several.shape[1], n * n))
        return np.sqrt(largest_of_any(squares.reshape(count, -1, n, n)))

    def largest_length(self, center: Array, parts: Array, metric: Array) -> Array:
        """Largest length ``(x^T M x)^1/2`` of any vertex, (T,), of vectors x.

        Args:
            center: x of the center, (T, n).
            parts: x by parameter of the last body, (T, n, 10).
            metric: M, (T, n, n).
        """
        several = np.concatenate([center[..., None], parts[..., self._used]], axis=2)
        squares = self._combine((np.swapaxes(several, 1, 2) @ metric @ several)[..., None])
        return np.sqrt(np.maximum(squares[..., 0].max(axis=1), 0.0))

    def largest_entries(self, center: Array, parts: Array) -> Array:
        """Largest magnitude of each entry of any vertex, (T, n); arguments as of :meth:`largest_length`."""
        if not self._used.size:
            return np.abs(center)
        several = self._offsets @ np.swapaxes(parts[..., self._used], 1, 2)  # (T, K, n)
        return np.maximum(several.max(axis=1) + center, -(several.min(axis=1) + center))

    def _combine(self, products: Array) -> Array:
        """``sum_lm o_kl o_km P_lm`` for each vertex, (S, K, r), of products P (S, l, m, r)."""
        upper = products[:, self._rows, self._columns]
        others = self._rows != self._columns
        upper[:, others] += products[:, self._columns[others], self._rows[others]]
        return self._products @ upper
