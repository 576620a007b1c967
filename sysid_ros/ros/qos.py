"""Quality of service of every topic, in one place."""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy


def _profile(depth: int | None, reliable: bool = True, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_ALL if depth is None else HistoryPolicy.KEEP_LAST,
        depth=depth or 0,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


SAMPLES = _profile(1000)
"""Sample batches: none may be lost, so reliable and deep enough for many seconds of a stalled receiver."""

LATCHED = _profile(1, latched=True)
"""The latest value, also for those who come late: robot description, estimate, plan."""

STATUS = _profile(1, latched=True)
"""State of the driver and of plans: the latest is what counts."""

SCENE = _profile(10, latched=True)
"""What the planner says is around the arm, of every planner there is."""

OBSTACLES = _profile(None, latched=True)
"""Obstacles as received from those that keep their last messages for late comers: each may add to those before."""

OBSTACLES_VOLATILE = _profile(None)
"""Obstacles as received from those that do not, as publishers are with the defaults of ROS."""

JOINT_STATES = _profile(100)
"""Joint states as published: reliable, which serves every kind of subscriber."""

JOINT_STATES_SUBSCRIBER = _profile(100, reliable=False)
"""Joint states as received: best effort also hears publishers that are not reliable."""

EFFORT_COMMANDS = _profile(1)
"""Commands to an effort controller: only the latest counts; controllers listen with the defaults of ROS, reliably."""

ALIVE_LEASE = 3.0
"""A node whose middleware has asserted nothing for so long is not alive [s]; it does so every two thirds of that."""
ALIVE = QoSProfile(
    depth=1,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
    liveliness=LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=Duration(seconds=ALIVE_LEASE),
)
"""After one message the middleware alone asserts that the process is alive, and says where it no longer is."""

MARKERS = _profile(1, latched=True)
"""RViz markers; RViz may be started last."""

DIAGNOSTICS = _profile(10)
"""As the diagnostics tools of ROS use it."""


def describe(profile: QoSProfile) -> str:
    """Describe a profile in words, as in 'reliable, volatile, keep last 1000'."""
    reliability = profile.reliability.name.lower().replace("_", " ")
    durability = profile.durability.name.lower().replace("_", " ")
    history = "keep all" if profile.history == HistoryPolicy.KEEP_ALL else f"keep last {profile.depth}"
    return f"{reliability}, {durability}, {history}"
