"""Linear inequalities that hold for every body of a known shape.

A body of mass m has its CoM c in a box ``[l, u]`` and ``0 <= Ic <= m r^2`` about it (as matrices). All of that is m
times a range, so the consequences are linear in the ten parameters and have no constant term. With ``I = Ic + m (c.c 1
- c c^T)``:

    ``l m <= m c <= u m``
    ``d^T I d <= m r^2 + m (c.c - (d.c)^2)``  for a unit vector d,  ``|I_xy + m c_x c_y| <= m r^2 / 2``

Products of c are replaced by their linear bounds over the box: ``c_x^2 <= (l + u) c_x - l u``, and McCormick's for
``c_x c_y``, with which no better ones exist for a single product. Bounds of the second moments from below are those of
all bodies (:func:`~.set_membership.find_cuts`).

Source: G. P. McCormick, Computability of global solutions to factorable nonconvex programs, Mathematical Programming
10 (1976).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import bound_com, transform_box, transform_matrix
from sysid_ros.core.model.robot import PayloadShape

Array = NDArray[np.float64]

COM_CUTS = 6
"""The first cuts: of mass and CoM alone, the strongest ones."""
_INERTIA = np.array([[4, 5, 7], [5, 6, 8], [7, 8, 9]])
"""Where the moments and products of inertia are among the ten parameters."""


def shape_cuts(shape: PayloadShape, box: Box) -> Array:
    """Return the inequalities ``cuts theta >= 0`` that every body of a shape fulfils in a box, (C, 10).

    The box holds the ten parameters; the less room it leaves the CoM, the tighter the inequalities.
    """
    cuts = _cuts_of_box(Box(*bound_com(box.lower, box.upper, shape.com)), shape.gyration)
    if shape.turned is None:
        return cuts
    turn = (shape.turned.axes.T, np.zeros(3))  # the same parameters seen along the other axes
    seen = transform_box(box, *turn)
    com = Box(*bound_com(seen.lower, seen.upper, shape.turned.box))
    return np.concatenate([cuts, _cuts_of_box(com, shape.gyration) @ transform_matrix(*turn)])


def _cuts_of_box(com: Box, gyration: float) -> Array:
    """Return the inequalities for a CoM in a box (3,) along the axes of the parameters, each of unit size, (C, 10)."""
    unit, lower, upper = np.eye(10), com.lower, com.upper
    mass, first, spin = unit[0], unit[1:4], gyration**2 * unit[0]
    squares = [(lower[k] + upper[k]) * first[k] - lower[k] * upper[k] * mass for k in range(3)]  # at least m c_k^2
    cuts = [*(first - np.outer(lower, mass)), *(np.outer(upper, mass) - first)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        other = 3 - a - b
        cuts.append(spin + squares[a] + squares[b] - unit[_INERTIA[other, other]])

        def product(at_a: float, at_b: float, a: int = a, b: int = b) -> Array:
            """Return the plane that touches ``m c_a c_b`` along two sides of the box, which meet at this corner."""
            return np.asarray(at_a * first[b] + at_b * first[a] - at_a * at_b * mass)

        below = [product(lower[a], lower[b]), product(upper[a], upper[b])]
        above = [product(lower[a], upper[b]), product(upper[a], lower[b])]
        mean = 0.5 * (unit[_INERTIA[a, a]] + unit[_INERTIA[b, b]])
        round_mean = spin + squares[other] + 0.5 * (squares[a] + squares[b])
        for plane in below:  # m c_a c_b is at least this
            cuts += [0.5 * spin - plane - unit[_INERTIA[a, b]], round_mean - plane - mean - unit[_INERTIA[a, b]]]
        for plane in above:
            cuts += [0.5 * spin + plane + unit[_INERTIA[a, b]], round_mean + plane - mean + unit[_INERTIA[a, b]]]
    result = np.stack(cuts)
    return np.asarray(result / np.linalg.norm(result, axis=1)[:, None])
