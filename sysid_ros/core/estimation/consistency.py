"""Whether data, assumptions and bounds can be true together, and if not, what contradicts the most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.rows import Rows
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.window_model import WindowModel

Array = NDArray[np.float64]

_NAMED = 4
"""Rows named in an alarm."""


def row_allowance(problem: Problem, radius: Array) -> Array:
    """Largest ``|r|`` each row can have for any target within ``radius`` (10,) of the centre, (R,) [Nms]."""
    allowed = np.abs(problem.y) @ radius + np.abs(problem.b) @ problem.delta_radius + problem.error
    allowed += np.abs(problem.ends).sum(axis=1) @ problem.end_radius
    return allowed * (1.0 + 1e-12)


def find_contradictions(problem: Problem) -> NDArray[np.intp]:
    """Rows that no target in the box can explain, worst first."""
    allowed = row_allowance(problem, problem.radius)
    rows = np.flatnonzero(np.abs(problem.r) > allowed)
    return rows[np.argsort(-(np.abs(problem.r) / allowed)[rows])]


def describe_contradictions(problem: Problem, rows: Rows, joint_names: tuple[str, ...], origin: int) -> str:
    """The rows that contradict the most, in words.

    Rows that no target in the box can explain come first; if there is none (only several rows together contradict),
    those that are furthest from the best target in the box.

    Args:
        problem: The rows, centred.
        rows: The same rows with their origin.
        joint_names: Names of the joints.
        origin: Stamp from which times are counted [ns].
    """
    worst = find_contradictions(problem)
    offset, allowed = problem.r, row_allowance(problem, problem.radius)
    if not worst.size:
        best = np.linalg.lstsq(problem.y / problem.error[:, None], problem.r / problem.error, rcond=None)[0]
        offset = problem.r - problem.y @ np.clip(best, -problem.radius, problem.radius)
        allowed = row_allowance(problem, np.zeros(10))
        worst = np.argsort(-np.abs(offset) / allowed)
    return "; ".join(_describe(rows, row, offset, allowed, joint_names, origin) for row in worst[:_NAMED])


def _describe(rows: Rows, row: int, offset: Array, allowed: Array, joint_names: tuple[str, ...], origin: int) -> str:
    span = f"{(rows.start[row] - origin) * 1e-9:.3f} to {(rows.stop[row] - origin) * 1e-9:.3f} s"
    if rows.window[row] < 0:
        return f"earlier windows together ({span})"
    seconds = float(rows.duration[row])
    return (
        f"{joint_names[rows.joint[row]]} in window {rows.window[row]} ({span}): mean torque off by "
        f"{abs(offset[row]) / seconds:.4g} Nm, {allowed[row] / seconds:.4g} Nm can be explained"
    )


def check_sensors(model: WindowModel, block: SampleBlock, start: int, stop: int) -> str:
    """Compares positions with the integral of the velocities over a window.

    Returns:
        What is wrong (a stuck encoder, wrong units, velocities of another joint), or an empty text.
    """
    times = (block.stamps[start : stop + 1] - block.stamps[start]).astype(float) * 1e-9
    q, v = block.q[start : stop + 1], block.v[start : stop + 1]
    steps = np.diff(times)
    travel = steps @ (0.5 * (v[1:] + v[:-1]))
    jitter = model.sensors.stamp_jitter
    long_steps = steps + 2.0 * jitter
    allowed = 2.0 * model.position_error + long_steps.sum() * model.sensors.velocity_error
    allowed = allowed + np.sum(long_steps**2) * model.acceleration / 4.0
    allowed = allowed + 2.0 * jitter * (np.max(np.abs(v), axis=0) + np.abs(np.diff(v, axis=0)).sum(axis=0)) + 1e-12
    excess = np.abs(q[-1] - q[0] - travel) - allowed
    if not np.any(excess > 0.0):
        return ""
    joint = int(np.argmax(excess))
    return (
        f"positions and velocities of {model.joint_names[joint]} disagree: it moved "
        f"{q[-1, joint] - q[0, joint]:.4g} rad, its velocities add up to {travel[joint]:.4g} rad, "
        f"{allowed[joint]:.2g} rad can be explained (stuck encoder, wrong units or joints mixed up)"
    )
