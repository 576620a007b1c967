"""The state of the control loop."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
from std_msgs.msg import Header

from sysid_msgs.msg import DriverStatus
from sysid_ros.ros.conversions.common import Array, stamp_to_message, to_array


class LoopState(Protocol):
    """What :func:`driver_status_message` needs of a loop's status; the arrays are (n,) [rad]."""

    mode: IntEnum
    code: IntEnum
    reason: str
    stamp_ns: int
    cycles: int
    invalid_cycles: int
    saturated_cycles: int
    missed_deadlines: int
    plan_id: str | None
    next_plan_id: str | None
    progress: float
    reference: Array
    tracking_error: Array
    tracking_error_max: Array
    tracking_bound: Array
    is_taking_over: bool
    rested: float
    model_box_hash: str


class LoopTimes(Protocol):
    """What :func:`driver_status_message` needs of a loop's timing [s]."""

    period_p50: float
    period_p99: float
    period_max: float
    compute_p50: float
    compute_p99: float
    compute_max: float


def driver_status_message(
    state: LoopState,
    times: LoopTimes,
    joint_names: Sequence[str],
    frame: str,
    *,
    is_simulated: bool,
    timing: int,
    payload_epoch: int,
    dropped: int,
    scene_hash: str | None = None,
) -> DriverStatus:
    """Convert the state of the loop to a message.

    Args:
        state: Status of the loop; its numbers of mode and code are those of the message.
        times: Its timing.
        joint_names: Names of the n joints.
        frame: Base frame of the arm.
        is_simulated: Whether the arm is simulated.
        timing: What ensures that torques act within one period, a ``TIMING_...`` of the message.
        payload_epoch: Number of the present payload.
        dropped: Samples lost on their way to ROS since the start.
        scene_hash: Hash of the scene the driver knows; None for none.
    """

    def joints(values: Array) -> object:
        return to_array("d", values, np.float64)

    return DriverStatus(
        header=Header(stamp=stamp_to_message(state.stamp_ns), frame_id=frame),
        joint_names=list(joint_names),
        mode=int(state.mode),
        code=int(state.code),
        text=state.reason,
        is_simulated=is_simulated,
        timing=timing,
        is_taking_over=bool(state.is_taking_over),
        rested=float(state.rested),
        plan_id=state.plan_id or "",
        next_plan_id=state.next_plan_id or "",
        progress=float(state.progress),
        model_box_hash=state.model_box_hash,
        scene_hash=scene_hash or "",
        payload_epoch=payload_epoch,
        reference_position=joints(state.reference),
        tracking_error=joints(state.tracking_error),
        tracking_error_max=joints(state.tracking_error_max),
        tracking_bound=joints(state.tracking_bound),
        cycles=int(state.cycles),
        invalid_cycles=int(state.invalid_cycles),
        missed_deadlines=int(state.missed_deadlines),
        dropped_samples=int(dropped),
        saturated_cycles=int(state.saturated_cycles),
        period_p50=float(times.period_p50),
        period_p99=float(times.period_p99),
        period_max=float(times.period_max),
        compute_p50=float(times.compute_p50),
        compute_p99=float(times.compute_p99),
        compute_max=float(times.compute_max),
    )
