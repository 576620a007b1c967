"""Reads measurements of a free-flying robot from a recording (MCAP)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pinocchio as pin

from sysid_ros.reports.recordings.mcap import read_messages
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.recordings.readers import Watch, read_all
from sysid_ros.space.core.identification import Samples
from sysid_ros.space.core.robot import FreeFlyer

ODOMETRY, JOINTS = "nav_msgs/msg/Odometry", "sensor_msgs/msg/JointState"


def read_free_flyer_recording(path: Path | str, robot: FreeFlyer, watch: Watch = read_all) -> Samples:
    """Read odometry of the base and joint states of a recording (MCAP), matched by their stamps.

    Args:
        path: The file.
        robot: The robot; joints and wheels are matched by name.
        watch: Receives the progress, and may end it; the samples are those read by then.

    Raises:
        InvalidRecording: The file is missing, has no samples of this robot, or a twist is not its base's.
        DamagedRecording: It is no MCAP file.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing", "a readable MCAP file")
    names = (*robot.joint_names, *robot.wheels.names)
    bases: dict[int, tuple[list[float], list[float], list[float]]] = {}
    joints: dict[int, tuple[list[float], list[float]]] = {}
    for entry in read_messages(file, (ODOMETRY, JOINTS), watch):
        message = entry.message
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if entry.type_name == ODOMETRY:
            if message.child_frame_id != robot.base_link:
                allowed = f"'{robot.base_link}', the base, in whose axes the twist has to be"
                raise InvalidRecording(file, "child_frame_id of the odometry", f"'{message.child_frame_id}'", allowed)
            linear, angular = message.twist.twist.linear, message.twist.twist.angular
            place, turn = message.pose.pose.position, message.pose.pose.orientation
            bases[stamp] = (
                [linear.x, linear.y, linear.z, angular.x, angular.y, angular.z],
                [turn.x, turn.y, turn.z, turn.w],
                [place.x, place.y, place.z],
            )
            continue
        missing = [name for name in names if name not in message.name]
        if missing:
            raise InvalidRecording(file, "the joints", ", ".join(message.name), f"all of {', '.join(names)}")
        order = [list(message.name).index(name) for name in names]
        joints[stamp] = [message.position[k] for k in order], [message.velocity[k] for k in order]
    stamps = sorted(bases.keys() & joints.keys())
    if len(stamps) < 2:
        found = f"{len(bases)} of {ODOMETRY}, {len(joints)} of {JOINTS}, {len(stamps)} with equal stamps"
        raise InvalidRecording(file, "the samples", found, "odometry of the base and joint states with equal stamps")
    times = 1e-9 * (np.array(stamps) - stamps[0])
    q, v = (np.array([joints[stamp][k] for stamp in stamps]) for k in range(2))
    twist, turns, positions = (np.array([bases[stamp][k] for stamp in stamps]) for k in range(3))
    rotations = np.stack([pin.Quaternion(turn).normalized().toRotationMatrix() for turn in turns])
    return Samples(times, twist, q, v, rotations, positions)
