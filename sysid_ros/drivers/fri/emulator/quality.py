"""How an emulated controller judges the connection: by the share of its latest messages that were answered in time.

KUKA does not publish the rule. What is known is that GOOD is enough for commanding, that missed answers lower the
quality, and that torques need an answer at least every 5 ms. The thresholds here are this emulator's own.
"""

from __future__ import annotations

from collections import deque

from sysid_ros.drivers.fri.enums import Quality

WINDOW = 100
"""Answers that are looked at."""
_THRESHOLDS = ((0.99, Quality.EXCELLENT), (0.9, Quality.GOOD), (0.5, Quality.FAIR))


class QualityWatch:
    """Counts answers that are due and come, or do not."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begins anew, with POOR."""
        self._answers: deque[bool] = deque(maxlen=WINDOW)
        self._good = 0

    def forget(self) -> None:
        """Takes all answers so far for missing; the quality rises again as good ones take their place."""
        self._answers.clear()
        self._answers.extend([False] * WINDOW)
        self._good = 0

    def note(self, is_answered: bool) -> None:
        """Notes that an answer was due."""
        if len(self._answers) == WINDOW:
            self._good -= self._answers[0]
        self._answers.append(is_answered)
        self._good += is_answered

    @property
    def quality(self) -> Quality:
        """The present quality; POOR until half a window has been seen."""
        seen = len(self._answers)
        if seen < WINDOW // 2:
            return Quality.POOR
        share = self._good / seen
        return next((quality for limit, quality in _THRESHOLDS if share >= limit), Quality.POOR)
