"""Proven bounds of the tracking error, in the order of the theorem in docs/control.md."""

from sysid_ros.core.tracking_bound.allocation import (
    TrackingAllowance,
    feedback_allowance,
    tracking_allowance,
    worst_case_torque,
)
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory, bound_motion, tracking_bound
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload

__all__ = [
    "BoundNotAvailable",
    "TrackingAllowance",
    "TrackingBound",
    "TrackingHistory",
    "bound_motion",
    "choose_payload",
    "feedback_allowance",
    "tracking_allowance",
    "tracking_bound",
    "worst_case_torque",
]
