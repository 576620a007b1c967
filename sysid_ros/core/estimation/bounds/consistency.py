"""Whether data, assumptions and bounds can be true together, and if not, what contradicts the most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock

Array = NDArray[np.float64]

_NAMED = 4
"""Rows named in an alarm."""


def row_allowance(problem: Problem, radius: Array) -> Array:
    """Largest ``|r|`` each row can have for any target within ``radius`` (P,) of the centre, (R,) [Nms]."""
    allowed = np.abs(problem.y) @ radius + np.abs(problem.b) @ problem.delta_radius + problem.error
    allowed += np.abs(problem.ends).sum(axis=1) @ problem.end_radius
    return allowed * (1.0 + 1e-12)


def find_contradictions(problem: Problem) -> NDArray[np.intp]:
    """Rows that no target in the box can explain, worst first."""
    allowed = row_allowance(problem, problem.radius)
    rows = np.flatnonzero(np.abs(problem.r) > allowed)
    return rows[np.argsort(-np.abs(problem.r[rows]) / np.maximum(allowed[rows], 1e-300))]


def describe_contradictions(
    problem: Problem, rows: Rows, joint_names: tuple[str, ...], origin: int, combination: Array | None = None
) -> str:
    """The rows that contradict the most, in words.

    Rows that no target in the box can explain come first; if there is none (only several rows together contradict),
    those with the largest part in a combination that proves it; without one, those furthest from the best target in
    the box.

    Args:
        problem: The rows, centred.
        rows: The same rows with their origin.
        joint_names: Names of the joints.
        origin: Stamp from which times are counted [ns].
        combination: A combination of the rows that no target can explain, (R,), or None.
    """
    worst = find_contradictions(problem)
    if not worst.size and combination is not None:
        return _describe_combination(rows, np.abs(combination) * problem.error, joint_names, origin)
    offset, allowed = problem.r, row_allowance(problem, problem.radius)
    if not worst.size:
        best = np.linalg.lstsq(problem.y / problem.error[:, None], problem.r / problem.error, rcond=None)[0]
        offset = problem.r - problem.y @ np.clip(best, -problem.radius, problem.radius)
        allowed = row_allowance(problem, np.zeros_like(problem.radius))
        worst = np.argsort(-np.abs(offset) / allowed)
    return "; ".join(_describe(rows, row, offset, allowed, joint_names, origin) for row in worst[:_NAMED])


def _describe_combination(rows: Rows, parts: Array, joint_names: tuple[str, ...], origin: int) -> str:
    """Rows by how much the contradiction rests on their error bounds, (R,)."""
    largest = np.argsort(-parts)[:_NAMED]
    shares = 100.0 * parts[largest] / max(float(parts.sum()), 1e-300)
    texts = [
        f"{_name(rows, row, joint_names)} ({_span(rows, row, origin)}) with {share:.0f} %"
        for row, share in zip(largest, shares, strict=True)
    ]
    return "windows contradict each other, the largest parts have " + "; ".join(texts)


def _name(rows: Rows, row: int, joint_names: tuple[str, ...]) -> str:
    if rows.window[row] < 0:
        return "earlier windows together"
    return f"{joint_names[rows.joint[row]]} in window {rows.window[row]}"


def _span(rows: Rows, row: int, origin: int) -> str:
    return f"{(rows.start[row] - origin) * 1e-9:.3f} to {(rows.stop[row] - origin) * 1e-9:.3f} s"


def _describe(rows: Rows, row: int, offset: Array, allowed: Array, joint_names: tuple[str, ...], origin: int) -> str:
    name = f"{_name(rows, row, joint_names)} ({_span(rows, row, origin)})"
    if rows.window[row] < 0:
        return name
    seconds = float(rows.duration[row])
    return (
        f"{name}: mean torque off by "
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
