"""Whether states come as often and as regularly as a control law, and its proven bounds, take for granted."""

from __future__ import annotations

import numpy as np

from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.stamps import mean_period
from sysid_ros.drivers.takeover import TakeoverRefused

_FEWEST = 10


class StatesMissing(TakeoverRefused):
    """Too many states are missing, which may be better the next moment.

    Args:
        reason: How many.
    """


def require_rate(stamps_ns: list[int], settings: Ros2ControlSettings, name: str) -> float:
    """Compares consecutive stamps with the period that is set.

    Args:
        stamps_ns: Stamps of consecutive states [ns].
        settings: Period and tolerances.
        name: Where they come from, for the message.

    Returns:
        The mean period that was measured [s].

    Raises:
        TakeoverRefused: States come slower or faster.
        StatesMissing: Too many of them are missing.
    """
    if len(stamps_ns) < _FEWEST:
        raise TakeoverRefused(f"{name}: only {len(stamps_ns)} states came; {_FEWEST} are needed to know their rate")
    period, nominal = mean_period(stamps_ns), settings.period
    if abs(period - nominal) > settings.rate_tolerance * nominal:
        raise TakeoverRefused(
            f"{name} comes at {1.0 / period:.4g} Hz, update_rate is {1.0 / nominal:.4g} Hz (allowed difference "
            f"{100.0 * settings.rate_tolerance:g} %); set update_rate to the rate of the controller manager"
        )
    steps = np.round(np.diff(stamps_ns) * 1e-9 / nominal)
    missing = float(np.maximum(steps - 1.0, 0.0).sum())
    share = missing / (missing + steps.size)
    if share > settings.missing_share:
        raise StatesMissing(
            f"{name}: {100.0 * share:.1f} % of the states are missing (allowed {100.0 * settings.missing_share:g} %)"
        )
    return period
