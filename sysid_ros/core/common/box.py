"""Interval vectors: quantities known between a lower and an upper value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError


@dataclass(frozen=True)
class Box:
    """A closed interval vector.

    Attributes:
        lower: Lower bounds, (k,).
        upper: Upper bounds, (k,).

    Raises:
        SysidError: A lower bound is above its upper bound or not a number.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def __post_init__(self) -> None:
        lower = np.array(self.lower, dtype=float)
        upper = np.array(self.upper, dtype=float)
        bad = np.flatnonzero(~(lower <= upper))
        if bad.size:
            text = f"entry {bad[0]} of the box has lower bound {lower[bad[0]]} and upper bound {upper[bad[0]]}"
            raise SysidError(f"{text}; lower must be <= upper")
        for array in (lower, upper):
            array.setflags(write=False)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @classmethod
    def around(cls, center: ArrayLike, radius: ArrayLike) -> Box:
        """Build the box ``center +- radius``, both (k,)."""
        middle, half = np.asarray(center, dtype=float), np.asarray(radius, dtype=float)
        return cls(middle - half, middle + half)

    @property
    def center(self) -> NDArray[np.float64]:
        """Midpoints, (k,)."""
        return 0.5 * (self.lower + self.upper)

    @property
    def radius(self) -> NDArray[np.float64]:
        """Radii, (k,), half the widths, rounded up so that ``center +- radius`` covers the box."""
        center = self.center
        return np.nextafter(np.maximum(self.upper - center, center - self.lower), np.inf)

    @property
    def width(self) -> NDArray[np.float64]:
        """Widths, (k,)."""
        return self.upper - self.lower

    def contains(self, point: ArrayLike) -> bool:
        """Test whether the point (k,) lies inside, borders included."""
        values = np.asarray(point, dtype=float)
        return bool(np.all((self.lower <= values) & (values <= self.upper)))

    def is_subset_of(self, other: Box) -> bool:
        """Test whether this box lies inside the other, borders included."""
        return bool(np.all((other.lower <= self.lower) & (self.upper <= other.upper)))

    def __add__(self, other: Box) -> Box:
        """Return the box of all sums of a point of this and a point of the other, rounded outwards."""
        return Box(np.nextafter(self.lower + other.lower, -np.inf), np.nextafter(self.upper + other.upper, np.inf))

    def select(self, part: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Box:
        """Return the box of some entries."""
        return Box(self.lower[part], self.upper[part])

    def intersect(self, other: Box) -> Box | None:
        """Return the intersection with another box, or None where it is empty."""
        lower, upper = np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper)
        return Box(lower, upper) if np.all(lower <= upper) else None
