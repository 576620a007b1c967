"""Identification of what an arm holds that somebody else moves: nothing is planned, and nothing is commanded."""

from __future__ import annotations

from sysid_ros.core.identification.procedure import Procedure
from sysid_ros.core.identification.types import Phase

_LOOK_PERIOD = 0.5
"""Time between two looks at the estimate [s]."""


class ObserveProcedure(Procedure):
    """Watches for a while, or until the payload is known well enough.

    Whatever the arm does is data. Where it does nothing, the bounds say what gravity alone tells.
    """

    @property
    def _expected(self) -> int:
        return 0

    def _weigh(self) -> None:
        """There is no rest to wait for: the arm may be moving."""

    def _move(self) -> str:
        backend, longest = self._backend, self._settings.max_motion_time
        looks = max(1, round(longest / _LOOK_PERIOD))
        for look in range(looks):
            self._report(Phase.ESTIMATING, "watching the arm", look / looks)
            backend.wait(_LOOK_PERIOD)
            self._require_not_cancelled()
            self._require_consistent(backend.estimate())
            reason = self._target_is_met(backend.estimate())
            if reason:
                return reason
        self._report(Phase.ESTIMATING, "evaluating", 1.0)
        backend.settle(0.0)  # with all that was seen until now, and no more: the arm may go on moving
        self._require_consistent(backend.estimate())
        return f"the arm was watched for {longest:g} s"
