"""Reads what was measured of a free-flying robot from a recording (MCAP)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sysid_ros.core.free_floating.procedure import Samples
from sysid_ros.core.free_floating.robot import FreeFlyer
from sysid_ros.reports.recordings.mcap import read_messages
from sysid_ros.reports.recordings.readers import InvalidRecording

TWIST, JOINTS = "geometry_msgs/msg/TwistStamped", "sensor_msgs/msg/JointState"


def read_free_flyer_recording(path: Path | str, robot: FreeFlyer) -> Samples:
    """Read base twist and joint states of a recording (MCAP), matched by their stamps.

    Args:
        path: The file.
        robot: The robot; joints and wheels are matched by name.

    Raises:
        InvalidRecording: The file is missing, or has no samples of this robot.
        DamagedRecording: It is no MCAP file.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing", "a readable MCAP file")
    names = (*robot.joint_names, *robot.wheels.names)
    twists: dict[int, list[float]] = {}
    joints: dict[int, tuple[list[float], list[float]]] = {}
    for entry in read_messages(file):
        message = entry.message
        if entry.type_name not in (TWIST, JOINTS):
            continue
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if entry.type_name == TWIST:
            linear, angular = message.twist.linear, message.twist.angular
            twists[stamp] = [linear.x, linear.y, linear.z, angular.x, angular.y, angular.z]
            continue
        missing = [name for name in names if name not in message.name]
        if missing:
            raise InvalidRecording(file, "the joints", ", ".join(message.name), f"all of {', '.join(names)}")
        order = [list(message.name).index(name) for name in names]
        joints[stamp] = [message.position[k] for k in order], [message.velocity[k] for k in order]
    stamps = sorted(twists.keys() & joints.keys())
    if len(stamps) < 2:
        found = f"{len(twists)} of {TWIST}, {len(joints)} of {JOINTS}, {len(stamps)} with equal stamps"
        raise InvalidRecording(file, "the samples", found, "base twist and joint states with equal stamps")
    times = 1e-9 * (np.array(stamps) - stamps[0])
    q, v = (np.array([joints[stamp][k] for stamp in stamps]) for k in range(2))
    return Samples(times, np.array([twists[stamp] for stamp in stamps]), q, v)
