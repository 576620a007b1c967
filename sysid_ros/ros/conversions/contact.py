"""External torques and wrenches with their bounds, as messages that plotting tools and RViz know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Vector3, Wrench, WrenchStamped
from numpy.typing import ArrayLike
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from sysid_ros.ros.conversions.common import stamp_to_message, to_array


def efforts_message(stamp_ns: int, joint_names: Sequence[str], efforts: ArrayLike) -> JointState:
    """Convert joint torques (n,) [Nm] to efforts without positions and velocities."""
    header = Header(stamp=stamp_to_message(stamp_ns))
    return JointState(header=header, name=list(joint_names), effort=to_array("d", efforts, np.float64))


def wrench_message(stamp_ns: int, frame: str, wrench: ArrayLike) -> WrenchStamped:
    """Convert a wrench (6,) [N, Nm], force before moment, at the origin of a frame in its axes."""
    values = [float(value) for value in np.asarray(wrench, dtype=float)]
    return WrenchStamped(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=frame),
        wrench=Wrench(
            force=Vector3(**dict(zip("xyz", values[:3], strict=True))),
            torque=Vector3(**dict(zip("xyz", values[3:], strict=True))),
        ),
    )
