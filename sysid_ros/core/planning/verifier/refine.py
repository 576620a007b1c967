"""Divides time until every limit is proven to hold, or one is found that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.motion_checks import PlanRejected

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""By how much every margin is lowered for rounding [-, rad, m].

A margin is the result of fewer than 1e4 additions and multiplications of double precision, one depending on the other,
of numbers whose products stay below 1e2 (limits are 1, lengths of the arm a few m, torques below 10 times their limit,
or the plan is rejected): the error stays below 1e4 * 1e2 * 2^-53 = 1.1e-10.
"""


@dataclass(frozen=True)
class Check:
    """Margins of one kind of limit over P pieces.

    Attributes:
        kind: Kind of limit, as in :class:`PlanRejected`.
        unit: Unit of value and limit.
        names: What each row is about: joints or pairs of links.
        margin: Lower bounds of the margin, (rows, P).
        middle: What the lower bound would be at the middle of each piece if the piece had no length, (rows, P).
        value: Function of row and margin that gives what is reached and what is allowed, in the unit.
        tolerance: By how much the smallest margin may be underestimated.
    """

    kind: str
    unit: str
    names: Sequence[str]
    margin: Array
    middle: Array
    value: Callable[[int, float], tuple[float, float]]
    tolerance: float


@dataclass
class Tightest:
    """The smallest margin of one kind found so far.

    Attributes:
        margin: Lower bound of all margins.
        middle: Smallest margin in the middle of any piece: no division raises ``margin`` above it.
        where: What that one is about.
        when: When it is [s].
    """

    margin: float = np.inf
    middle: float = np.inf
    where: str = ""
    when: float = 0.0

    def take_middle(self, check: Check, times: Array) -> None:
        """Takes in the margins in the middle of pieces, (rows, P), at times (P,)."""
        row, piece = np.unravel_index(int(np.argmin(check.middle)), check.middle.shape)
        if check.middle[row, piece] < self.middle:
            self.middle, self.when = float(check.middle[row, piece]), float(times[piece])
            self.where = check.names[int(row)]


@dataclass
class Division:
    """Divides time until all checks pass.

    Attributes:
        shortest: Half length below which a piece is not divided [s].
        tightest: Smallest margin of each kind.
        pieces: Pieces looked at so far.
    """

    shortest: float
    tightest: dict[str, Tightest] = field(default_factory=dict)
    pieces: int = 0

    def run(
        self, evaluate: Callable[[Array, Array], Sequence[Check]], middle: Array, half: Array
    ) -> dict[str, Tightest]:
        """Evaluates pieces and divides those that decide.

        Args:
            evaluate: Function of middles and half lengths of pieces, each (P,) [s], that gives the checks.
            middle: Middles of the first pieces, (P,) [s].
            half: Their half lengths, (P,) [s].

        Returns:
            The smallest margin of each kind; all are at least 0.

        Raises:
            PlanRejected: A limit is broken in the middle of a piece, or the bound over a piece of the shortest length
                still breaks it.
        """
        self.tightest = {}
        while middle.size:
            self.pieces += middle.size
            checks = evaluate(middle, half)
            for check in checks:
                self._require(check, check.middle, middle)
                self.tightest.setdefault(check.kind, Tightest()).take_middle(check, middle)
            flagged = np.zeros(middle.size, dtype=bool)
            for check in checks:
                lowest = check.margin.min(axis=0) - ROUNDING
                decides = lowest < self.tightest[check.kind].middle - check.tolerance
                flagged |= (lowest < 0.0) | decides | np.isnan(lowest)
            flagged &= half > self.shortest
            done = ~flagged
            for check in checks:
                self._require(check, check.margin[:, done] - ROUNDING, middle[done])
                tightest = self.tightest[check.kind]
                tightest.margin = min(tightest.margin, float(check.margin[:, done].min(initial=np.inf)) - ROUNDING)
            half = np.repeat(0.5 * half[flagged], 2)
            middle = np.repeat(middle[flagged], 2) + np.tile([-1.0, 1.0], flagged.sum()) * half
        return self.tightest

    def _require(self, check: Check, margins: Array, times: Array) -> None:
        if not margins.size or margins.min() >= 0.0:
            return
        row, piece = np.unravel_index(int(np.argmin(np.where(np.isnan(margins), -np.inf, margins))), margins.shape)
        value, allowed = check.value(int(row), float(margins[row, piece]))
        raise PlanRejected(check.kind, check.names[int(row)], float(times[piece]), value, allowed, check.unit)
