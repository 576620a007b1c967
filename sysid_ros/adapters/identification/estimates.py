"""The estimator node as the source of estimates of a procedure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_msgs.srv import ResetEstimator
from sysid_ros.adapters.identification.session import Session
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed
from sysid_ros.ros import qos

REPEAT_AFTER = 5.0
"""How long the estimator's answer that it forgets is waited for before it is asked again [s]."""


class RosEstimates:
    """An :class:`sysid_ros.core.procedure.EstimateSource`.

    Args:
        session: The suite.
    """

    def __init__(self, session: Session):
        self._session, self._monitor = session, session.monitor

    def reset(self, reason: str) -> None:
        """See :class:`EstimateSource`."""
        session = self._session
        request = ResetEstimator.Request(reason=reason, until=self._monitor.sample_stamp_ns)
        # To forget the same data twice does no harm, and this is the first that a node just started is asked.
        code = IdentificationErrorCode.TIMEOUT
        response = session.call(session.clients.reset, request, code, repeat_after=REPEAT_AFTER)
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.INTERNAL, f"estimator: {response.message}")
        self._monitor.forget_estimates(response.until)

    def latest(self) -> ParameterEstimate | None:
        """See :class:`EstimateSource`."""
        return self._monitor.estimate

    def information(self) -> NDArray[np.float64]:
        """See :class:`EstimateSource`."""
        return self._monitor.information

    def stamp_ns(self) -> int:
        """See :class:`EstimateSource`."""
        return self._monitor.estimate_stamp_ns

    def catch_up(self) -> None:
        """See :class:`EstimateSource`; waits as long as the estimator makes progress."""
        session, monitor = self._session, self._monitor
        wanted = monitor.sample_stamp_ns
        while (reached := monitor.estimate_stamp_ns) < wanted:

            def has_moved_on(since: int = reached) -> bool:
                return monitor.estimate_stamp_ns > since

            if not session.wait_until(has_moved_on):
                error = session.describe_timeout("estimator/estimate", "new estimate", qos.LATCHED)
                raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, error)
