"""Consecutive samples of the loop, as the estimator and the ROS side take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopSample


@dataclass(frozen=True)
class LoopSamples:
    """Consecutive usable samples of the loop.

    Attributes:
        block: Stamps, counters and measurements of N cycles; cycles without a usable measurement are missing.
        q_d: Desired positions, (N, n) [rad].
        v_d: Desired velocities, (N, n) [rad/s].
        a_d: Desired accelerations, (N, n) [rad/s^2].
        tau_command: Torques sent, (N, n) [Nm].
        modes: Mode of the loop, (N,).
        dropped: Cycles lost since the start because they were read too late.
    """

    block: SampleBlock
    q_d: Array
    v_d: Array
    a_d: Array
    tau_command: Array
    modes: NDArray[np.int64]
    dropped: int


def collect_samples(samples: Sequence[LoopSample], n: int) -> LoopSamples:
    """The usable ones of samples that :meth:`ControlLoop.step` returned, of an arm with n joints."""
    usable = [sample for sample in samples if sample.ok and np.isfinite(sample.tau).all()]
    vectors = np.array([sample[3:10] for sample in usable], dtype=float).reshape(len(usable), 7, n)
    block = SampleBlock(
        np.array([sample.stamp_ns for sample in usable], dtype=np.int64),
        np.array([sample.sequence for sample in usable], dtype=np.int64),
        vectors[:, 0],
        vectors[:, 1],
        vectors[:, 2],
    )
    modes = np.array([sample.mode for sample in usable], dtype=np.int64)
    return LoopSamples(block, vectors[:, 3], vectors[:, 4], vectors[:, 5], vectors[:, 6], modes, 0)
