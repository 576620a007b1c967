"""Which objectives an update of the bounds solves anew, so that its time goes where bounds still move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TURNS = 3
"""Every objective is solved at least in one of so many updates."""
_STILL = 5e-3
"""An objective whose range shrank by less than this part of it when it was last solved waits for its turn."""
_STIRRING = 0.05
"""One that shrinks by more than this makes all of them count as moving again."""


class Schedule:
    """Keeps which ranges moved when they were last computed anew, and how long ago that was.

    A range that is not computed anew holds as before, since new data only take targets away. It may be a little wider
    than what all data allow, for two updates at most.

    Args:
        count: Number of objectives K.
    """

    def __init__(self, count: int):
        self._is_moving = np.ones(count, dtype=bool)
        self._age = np.zeros(count, dtype=int)

    def due(self) -> NDArray[np.bool_]:
        """Objectives for the next update, (K,): all that move, and a part of the others, those that waited longest."""
        waiting = np.flatnonzero(~self._is_moving)
        turn = -(-waiting.size // TURNS)
        result = self._is_moving.copy()
        result[waiting[np.argsort(-self._age[waiting], kind="stable")[:turn]]] = True
        return result | (self._age >= TURNS - 1)

    def note(self, solved: NDArray[np.bool_], gain: Array) -> None:
        """Notes an update.

        Args:
            solved: Objectives that were solved, (K,).
            gain: By how much their ranges shrank, as a part of what they were, (K,).
        """
        self._age = np.where(solved, 0, self._age + 1)
        self._is_moving = np.where(solved, gain > _STILL, self._is_moving)
        if np.any(solved & (gain > _STIRRING)):
            self._is_moving[:] = True
