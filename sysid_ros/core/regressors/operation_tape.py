"""Operations of numpy on fixed arrays, recorded once and run for every chunk of samples.

As a list they take less time than the same statements, which make their slices anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

Array = NDArray[np.float64]


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

    def add_matmul(self, left: Array, right: Array, out: Array) -> None:
        """Append ``out += left @ right`` without a temporary; ``right`` and ``out`` are contiguous."""
        # BLAS adds to what it finds, and sees the transposes: those are its matrices in column order.
        self.record(partial(blas.dgemm, c=out.T, beta=1.0, overwrite_c=1), 1.0, right.T, np.asfortranarray(left.T))

    def sum_products(self, subscripts: str, *arrays: Array) -> None:
        """Append ``einsum`` of all arrays but the last into the last, which is none of the others."""
        *operands, out = arrays
        self.record(partial(np.einsum, out=out), subscripts, *operands)

    def product(self, left: Array, right: Array | float) -> Array:
        """Append a product in the scratch space and return where it will be."""
        shape = np.broadcast_shapes(left.shape, np.shape(right))
        result = self._scratch[: int(np.prod(shape))].reshape(shape)
        self.record(np.multiply, left, right, result)
        return result
