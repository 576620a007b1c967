"""Operations of numpy on fixed arrays, recorded once and run for every chunk of samples.

As a list they take half the time of the same statements, which make their slices anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Terms = tuple[tuple[int, float], ...]
"""A linear combination of vectors: their indices and factors."""


class Tape:
    """Operations on fixed arrays, in their order.

    Args:
        scratch: Space for products, at least of the size of the largest, (S,).
    """

    def __init__(self, scratch: Array):
        self._scratch = scratch
        self._operations: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def run(self) -> None:
        """Run all operations."""
        for function, arguments in self._operations:
            function(*arguments)

    def record(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Append a function with its arguments, the output last."""
        self._operations.append((function, arguments))

    def add_product(self, left: Array, right: Array | float, out: Array, sign: float = 1.0) -> None:
        """Append ``out += sign * left * right``."""
        product = self.product(left, right)
        self.record(np.add if sign > 0.0 else np.subtract, out, product, out)

    def add_products(self, left: Array, right: Array, axis: int, out: Array, sign: float = 1.0) -> None:
        """Append ``out += sign * sum(left * right)`` over an axis."""
        product = self.product(left, right)
        total = self._scratch[product.size : product.size + out.size].reshape(out.shape)
        self.record(np.add.reduce, product, axis, None, total)
        self.record(np.add if sign > 0.0 else np.subtract, out, total, out)

    def product(self, left: Array, right: Array | float) -> Array:
        """Append a product in the scratch space and return where it will be."""
        shape = np.broadcast_shapes(left.shape, np.shape(right))
        result = self._scratch[: int(np.prod(shape))].reshape(shape)
        self.record(np.multiply, left, right, result)
        return result

    def combine(self, terms: Terms, vectors: Array, out: Array) -> None:
        """Append one component of a constant map of vectors (3, ...)."""
        (first, factor), *others = terms
        if factor == 1.0:
            self.record(np.positive, vectors[first], out)
        else:
            self.record(np.multiply, vectors[first], factor, out)
        for k, more in others:
            self.add_product(vectors[k], more, out)
