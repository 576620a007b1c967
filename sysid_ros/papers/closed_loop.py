"""A simulated arm under any control law, without certificates: for comparisons in which some laws have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.settings import Controller
from sysid_ros.core.trajectories.base import State
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.executor import tell_share

Array = NDArray[np.float64]
Reference = Callable[[float], State]
"""Desired position, velocity and acceleration at a time [s]."""
_TOLD_EVERY = 1000
"""Cycles between two reports of progress."""


def smooth_step(s: float) -> tuple[float, float, float]:
    """Return the polynomial of degree 5 from 0 to 1 with rest at both ends, and two derivatives, at s within [0, 1]."""
    return s**3 * (10 - 15 * s + 6 * s * s), 30 * s * s * (1 - s) ** 2, 60 * s * (1 - s) * (1 - 2 * s)


@dataclass(frozen=True)
class Trace:
    """Motion of an arm, one row per cycle.

    Attributes:
        t: Times since the start, (N,) [s].
        q: True positions, (N, n) [rad].
        v: True velocities, (N, n) [rad/s].
        desired: Desired positions, (N, n) [rad].
        command: Commanded torques, before the limits, (N, n) [Nm].
        stamps: Measured times, (N,) [ns].
        measured: Measured positions [rad], velocities [rad/s] and efforts [Nm], (3, N, n).
    """

    t: Array
    q: Array
    v: Array
    desired: Array
    command: Array
    stamps: NDArray[np.int64]
    measured: Array

    @property
    def error(self) -> Array:
        """Desired less true positions, (N, n) [rad]."""
        return self.desired - self.q


def follow(
    arm: MujocoArm,
    controller: Controller,
    reference: Reference,
    duration: float,
    on_cycle: Callable[[int], None] = lambda cycle: None,
) -> Trace:
    """Let an arm follow a reference from rest at its start.

    Args:
        arm: The arm; connected here.
        controller: The control law, in the caller's state.
        reference: The reference.
        duration: Duration [s].
        on_cycle: Called after every cycle with its number.
    """
    arm.connect()
    rows: list[tuple[Array, ...]] = []
    stamps = []
    for cycle in range(round(duration / arm.period)):
        state, truth = arm.read(), arm.truth()
        desired = reference(cycle * arm.period)
        torque = controller.compute(state.q, state.v, *desired)
        arm.command(torque)
        rows.append((truth.q, truth.v, desired[0], torque, state.q, state.v, state.tau))
        stamps.append(state.stamp_ns)
        on_cycle(cycle)
        if cycle % _TOLD_EVERY == 0:
            tell_share(cycle * arm.period / duration)
    q, v, wanted, command, *measured = (np.array(column) for column in zip(*rows, strict=True))
    times = arm.period * np.arange(len(rows), dtype=np.float64)
    return Trace(times, q, v, wanted, command, np.array(stamps, dtype=np.int64), np.array(measured))
