"""Reads everything in a recording of a run but its samples: the arm, its motions, its true load."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import margin_rows
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.files import PLAN, read_plans
from sysid_ros.reports.recordings.mcap import DamagedRecording, holds, read_messages
from sysid_ros.reports.result import MotionRecord

_STATUS, _TRUTH = "sysid_msgs/msg/DriverStatus", "sysid_msgs/msg/SimulationTruth"


@dataclass(frozen=True)
class RecordedRun:
    """A run of the suite.

    Attributes:
        plans: Certified plans, in the order they were made.
        starts: When the arm began to follow each that it followed, by plan_id [ns].
        truth: True parameters of what a simulated arm held, about the frame of its last joint, (10,); else None.
    """

    plans: tuple[CertifiedPlan, ...] = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    truth: NDArray[np.float64] | None = None

    def motions(self, start_ns: int) -> tuple[MotionRecord, ...]:
        """Return the plans that were followed, with times since the first sample [ns]."""
        followed = [(self.starts[plan.plan_id], plan) for plan in self.plans if plan.plan_id in self.starts]
        return tuple(
            MotionRecord(
                1e-9 * (stamp - start_ns),
                plan.trajectory,
                claims=plan.certificate.claims,
                margins=margin_rows(plan.certificate),
            )
            for stamp, plan in sorted(followed, key=lambda one: one[0])
        )

    def fits(self, robot: RobotModel) -> bool:
        """Whether all plans were made for an arm as it is described here, with the same box of its parameters."""
        own = robot_hash(robot)
        return all(
            plan.certificate.robot_hash == own
            and np.array_equal(plan.boxes[0].lower, robot.theta_box.lower)
            and np.array_equal(plan.boxes[0].upper, robot.theta_box.upper)
            for plan in self.plans
        )


def read_run(path: Path) -> RecordedRun:
    """Read plans, their starts and the truth; nothing of them has to be there."""
    if not holds(path, _STATUS):
        return RecordedRun()
    plans: tuple[CertifiedPlan, ...] = ()
    starts: dict[str, int] = {}
    truth = None
    with suppress(DamagedRecording):  # of a file that is cut off, what comes before counts
        plans = tuple(read_plans(path)) if holds(path, PLAN) else ()
    durations = {plan.plan_id: float(plan.trajectory.duration) for plan in plans}
    with suppress(DamagedRecording):
        for entry in read_messages(path, {_STATUS, _TRUTH}):
            message = entry.message
            if entry.type_name == _TRUTH:
                truth = _truth(message)
            elif message.plan_id in durations and message.plan_id not in starts:
                stamp = 1_000_000_000 * message.header.stamp.sec + message.header.stamp.nanosec
                starts[message.plan_id] = stamp - round(1e9 * message.progress * durations[message.plan_id])
    return RecordedRun(plans, starts, truth)


def _truth(message: Any) -> NDArray[np.float64] | None:
    """Return the true parameters of a message in our order, (10,); None where nothing is attached."""
    if not message.valid:
        return None
    order = [list(message.names).index(name) for name in PARAMETER_NAMES]
    return np.array(message.payload, dtype=float)[order]
