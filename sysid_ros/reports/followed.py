"""What part of its plans an arm has followed, from the desired positions it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.reports.result import MotionRecord

Array = NDArray[np.float64]

_START_ERROR, _START_STEP = 0.1, 0.001
"""Starts are known this well, and are looked for in steps of this [s]."""
_SAME = 2e-3
"""Desired positions this far apart are still those of the plan [rad]; a stamp may be half a step off."""
_BLUR = 0.25
"""A plan that takes over leaves its predecessor's path slowly: for about so long they cannot be told apart [s]."""


def followed_motions(motions: Sequence[MotionRecord], seconds: Array, reference_q: Array) -> tuple[MotionRecord, ...]:
    """Motions with their exact starts, how long each was followed, and how that ended.

    Args:
        motions: Motions in order of time.
        seconds: Times of the samples, (N,) [s].
        reference_q: Desired positions, (N, n) [rad].
    """
    matched = [_match(motion, seconds, reference_q) for motion in motions]
    motions = [
        motion if it is None else replace(motion, start=it[0]) for motion, it in zip(motions, matched, strict=True)
    ]
    until = [-np.inf if it is None else it[1] for it in matched]
    found = []
    for index, motion in enumerate(motions):
        if until[index] <= motion.start:
            found.append(replace(motion, followed=0.0, ending="not followed"))
            continue
        end = motion.start + motion.trajectory.duration
        takers = [k for k in range(index + 1, len(motions)) if until[k] > motions[k].start]
        taker = takers[0] if takers and motions[takers[0]].start < end - _BLUR else None
        if taker is not None and until[index] >= motions[taker].start - _START_ERROR:
            seconds_followed, ending = motions[taker].start - motion.start, f"plan {taker + 1} took over"
        elif until[index] >= end - _START_ERROR:
            seconds_followed, ending = motion.trajectory.duration, "to its end"
        else:
            seconds_followed, ending = until[index] - motion.start, "stopped early"
        found.append(replace(motion, followed=float(seconds_followed), ending=ending))
    return tuple(found)


def _match(motion: MotionRecord, seconds: Array, reference_q: Array) -> tuple[float, float] | None:
    """First and last time at which the desired position was that of the plan [s]; None if it never was."""
    end = motion.start + motion.trajectory.duration
    inside = np.flatnonzero((seconds >= motion.start - _START_ERROR) & (seconds <= end))
    if inside.size < 2:
        return None
    times, desired = seconds[inside], reference_q[inside]
    # The start is known only so well. What follows it tells: it is the same plan whatever comes later.
    first = (times > motion.start + _START_ERROR) & (times < motion.start + 2.0 * _BLUR)
    some = np.flatnonzero(first)[:: max(1, int(first.sum()) // 20)]
    if not some.size:
        return None

    def apart(offset: float, rows: NDArray[np.int64]) -> Array:
        planned = motion.trajectory.sample(times[rows] - motion.start - offset)[0]
        return np.abs(planned - desired[rows]).max(axis=1)

    # The smallest of equal ones: what stands still fits anywhere. The median, for it may stop soon.
    offsets = sorted(np.arange(-_START_ERROR, _START_ERROR + 0.5 * _START_STEP, _START_STEP), key=abs)
    misfits = [float(np.median(apart(offset, some))) for offset in offsets]
    offset = float(offsets[int(np.argmin(misfits))])
    if min(misfits) > _SAME:
        return None
    rows = np.flatnonzero(times >= motion.start + offset)
    wrong = np.flatnonzero(apart(offset, rows) > _SAME)
    last = rows[wrong[0] - 1] if wrong.size and wrong[0] > 0 else rows[-1]
    return motion.start + offset, float(times[last])
