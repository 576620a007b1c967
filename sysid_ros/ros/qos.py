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
"""The latest value, also for late joiners: robot description, estimate, plan."""

STATUS = _profile(1, latched=True)
"""State of the driver and of plans: the latest is what counts."""

SCENE = _profile(10, latched=True)
"""Scene of the arm, from every planner."""

OBSTACLES = _profile(None, latched=True)
"""Obstacles from transient local publishers, which keep messages for late joiners: each may add obstacles."""

OBSTACLES_VOLATILE = _profile(None)
"""Obstacles from volatile publishers, the default of ROS."""

JOINT_STATES = _profile(100)
"""Joint states as published: reliable, which serves every kind of subscriber."""

JOINT_STATES_SUBSCRIBER = _profile(100, reliable=False)
"""Joint states as received: best effort also matches publishers that are not reliable."""

EFFORT_COMMANDS = _profile(1)
"""Commands to an effort controller: only the latest counts; controllers listen with the defaults of ROS, reliably."""

ALIVE_LEASE = 3.0
"""Liveliness lease [s]: without an assertion for this long a node is not alive; assertions come every two thirds."""
ALIVE = QoSProfile(
    depth=1,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
    liveliness=LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=Duration(seconds=ALIVE_LEASE),
)
"""After one message the middleware alone asserts that the process is alive, and reports when it no longer is."""

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
