"""Batches of samples, joint states, and external torques and wrenches with their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import Vector3, Wrench, WrenchStamped
from numpy.typing import ArrayLike, NDArray
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from sysid_msgs.msg import SampleBatch
from sysid_ros.core.estimation.windows.samples import SampleBlock, split_into_blocks
from sysid_ros.ros.conversions.common import Array, InvalidMessage, joint_order, stamp_to_message, to_array

_PER_JOINT = {
    "positions": "q",
    "velocities": "v",
    "efforts": "tau",
    "reference_positions": "q_d",
    "reference_velocities": "v_d",
    "reference_accelerations": "a_d",
    "commanded_efforts": "tau_command",
}


@dataclass(frozen=True)
class Samples:
    """Consecutive samples of the loop, with all recorded quantities.

    Attributes:
        stamps: (N,) int64 [ns].
        sequence: Running numbers, (N,) int64, without a gap.
        q: Measured positions, (N, n) [rad].
        v: Measured velocities, (N, n) [rad/s].
        tau: Measured efforts in joint direction, (N, n) [Nm].
        q_d: Desired positions, (N, n) [rad].
        v_d: Desired velocities, (N, n) [rad/s].
        a_d: Desired accelerations, (N, n) [rad/s^2].
        tau_command: Commanded efforts, (N, n) [Nm].
        valid: Which samples may be used to estimate, (N,) bool.
        mode: Mode of the loop, (N,) uint8.
        payload_epoch: Rises when the payload is announced to have changed.
        dropped: Samples lost before these since the start of the driver.
        session: Session of the driver.
    """

    stamps: NDArray[np.int64]
    sequence: NDArray[np.int64]
    q: Array
    v: Array
    tau: Array
    q_d: Array
    v_d: Array
    a_d: Array
    tau_command: Array
    valid: NDArray[np.bool_]
    mode: NDArray[np.uint8]
    payload_epoch: int = 0
    dropped: int = 0
    session: str = ""

    def blocks(self) -> tuple[list[SampleBlock], list[str]]:
        """Return the samples usable for estimation, as blocks, and a sentence for each kind of fault found."""
        good = self.valid
        return split_into_blocks(self.stamps[good], self.sequence[good], self.q[good], self.v[good], self.tau[good])


def samples_to_message(samples: Samples, joint_names: Sequence[str], frame: str) -> SampleBatch:
    """Convert samples to a batch.

    Args:
        samples: At least one sample, without a gap in its numbers.
        joint_names: Names of the n joints.
        frame: Base frame of the arm.

    Raises:
        InvalidMessage: There is no sample, or a number is missing between them.
    """
    count = samples.stamps.size
    if count == 0:
        raise InvalidMessage("SampleBatch", "stamps", "is empty; a batch has at least one sample")
    if np.any(np.diff(samples.sequence) != 1):
        raise InvalidMessage("SampleBatch", "first_sequence", "cannot describe samples with a gap; make two batches")
    batch = SampleBatch(
        header=Header(stamp=stamp_to_message(samples.stamps[-1]), frame_id=frame),
        joint_names=list(joint_names),
        first_sequence=int(samples.sequence[0]),
        payload_epoch=samples.payload_epoch,
        stamps=to_array("q", samples.stamps, np.int64),
        valid=[bool(flag) for flag in samples.valid],
        modes=to_array("B", samples.mode, np.uint8),
        dropped=samples.dropped,
        session=samples.session,
    )
    for field, name in _PER_JOINT.items():
        setattr(batch, field, to_array("d", getattr(samples, name), np.float64))
    return batch


def samples_from_message(batch: SampleBatch, joint_names: Sequence[str]) -> Samples:
    """Return a received batch in the robot's joint order.

    Raises:
        InvalidMessage: Joint names or the length of an array do not fit.
    """
    order = joint_order("SampleBatch", batch.joint_names, joint_names)
    stamps = np.asarray(batch.stamps, dtype=np.int64)
    count, n = stamps.size, len(joint_names)
    for field, length in {"valid": count, "modes": count, **{field: count * n for field in _PER_JOINT}}.items():
        found = len(getattr(batch, field))
        if found != length:
            raise InvalidMessage(
                "SampleBatch", field, f"has {found} entries; {count} samples of {n} joints need {length}"
            )
    values = {
        name: np.asarray(getattr(batch, field), dtype=float).reshape(count, n)[:, order]
        for field, name in _PER_JOINT.items()
    }
    return Samples(
        stamps=stamps,
        sequence=int(batch.first_sequence) + np.arange(count, dtype=np.int64),
        **values,
        valid=np.asarray(batch.valid, dtype=bool),
        mode=np.frombuffer(bytes(batch.modes), dtype=np.uint8),
        payload_epoch=int(batch.payload_epoch),
        dropped=int(batch.dropped),
        session=batch.session,
    )


def joint_state_message(
    stamp_ns: int, joint_names: Sequence[str], q: ArrayLike = (), v: ArrayLike = (), tau: ArrayLike = ()
) -> JointState:
    """Joint states for people and tools: q [rad], v [rad/s], tau [Nm], each (n,) or empty."""
    return JointState(
        header=Header(stamp=stamp_to_message(stamp_ns)),
        name=list(joint_names),
        position=to_array("d", q, np.float64),
        velocity=to_array("d", v, np.float64),
        effort=to_array("d", tau, np.float64),
    )


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
