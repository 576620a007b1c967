"""Samples as they arrive, cut into momentum windows that never span a gap, and the rows of the windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.model.robot import RobotModel

_REST_WINDOWS = 5
"""Windows at rest that count before most of them are left out."""


@dataclass(frozen=True)
class Window:
    """One window: samples ``start`` to ``stop`` (both included) of contiguous samples.

    Attributes:
        block: Contiguous samples; where the torque lags, they extend beyond ``stop``.
        start: First sample of the window.
        stop: Last sample of the window.
        number: Number of the window, from 0.
    """

    block: SampleBlock
    start: int
    stop: int
    number: int


class SampleStream:
    """Joins blocks of samples and cuts them into windows, the same ones for any size of the blocks.

    Late and duplicate samples are left out. A missing sample, a long step, a step with more acceleration than
    assumed or a restart of counter or clock ends a run of contiguous samples; a rest too short for a window is lost.

    Args:
        robot: The arm; its sensors and acceleration limits decide which steps are plausible.
        settings: Window length, longest step, lag.
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings):
        self._settings = settings
        self._n = robot.n
        self._velocity_error = robot.sensors.velocity_error
        self._acceleration = settings.acceleration_factor * robot.limits.a_max
        self._length = round(settings.window_duration * 1e9)
        self._beyond = round((settings.torque_lag + settings.torque_lag_tolerance) * 1e9)
        self._run = SampleBlock.empty(robot.n)
        self._last: tuple[int, int] | None = None
        self._number = 0

    def clear(self) -> None:
        """Discard the samples that are not yet part of a window; the numbering continues."""
        self._run = self._run.slice(len(self._run))

    def add(self, block: SampleBlock) -> tuple[list[Window], list[str]]:
        """Add a block; return the windows it completes and a sentence for each kind of event.

        Raises:
            InvalidSamples: The block has another number of joints.
        """
        if block.n != self._n:
            raise InvalidSamples("q", f"has {block.n} joints, the robot has {self._n}")
        block, notices = self._drop_late(block)
        if not len(block):
            return [], notices
        self._end_run_at_restart(block, notices)
        windows: list[Window] = []
        breaks = self._find_breaks(block, notices)
        for first, last in itertools.pairwise(sorted({0, *breaks, len(block)})):
            if first in breaks:
                self.clear()
            self._run = SampleBlock.concatenate([self._run, block.slice(first, last)])
            windows.extend(self._cut())
        self._last = int(block.stamps[-1]), int(block.sequence[-1])
        return windows, notices

    def _drop_late(self, block: SampleBlock) -> tuple[SampleBlock, list[str]]:
        if self._last is None or not len(block):
            return block, []
        stamp, counter = self._last
        known = int(np.count_nonzero((block.stamps <= stamp) & (block.sequence <= counter)))
        if not known:
            return block, []
        notice = f"{known} late or duplicate samples left out, up to counter {block.sequence[known - 1]}"
        return block.slice(known), [notice]

    def _end_run_at_restart(self, block: SampleBlock, notices: list[str]) -> None:
        """End the present run where clock or counter went back."""
        if self._last is None:
            return
        stamp, counter = self._last
        if block.stamps[0] <= stamp:
            notices.append(f"the clock was set back by {(stamp - block.stamps[0]) * 1e-9:.6g} s; windows end there")
        elif block.sequence[0] <= counter:
            notices.append(f"the counter restarted at {block.sequence[0]} after {counter}; windows end there")
        else:
            return
        self.clear()

    def _find_breaks(self, block: SampleBlock, notices: list[str]) -> list[int]:
        """Return the samples of the block that do not follow their predecessor."""
        last = self._run.slice(len(self._run) - 1) if len(self._run) else self._run
        joined = SampleBlock.concatenate([last, block])
        steps = np.diff(joined.stamps)
        missing = np.diff(joined.sequence) - 1
        too_long = steps > round(self._settings.max_gap * 1e9)
        limit = self._acceleration * (steps[:, None] * 1e-9) + 2.0 * self._velocity_error
        too_fast = np.any(np.abs(np.diff(joined.v, axis=0)) > limit, axis=1) & (missing == 0) & ~too_long
        kinds = (
            (missing > 0, f"{int(missing[missing > 0].sum())} samples missing"),
            (too_long & (missing == 0), f"steps longer than {self._settings.max_gap:g} s"),
            (too_fast, "steps with more acceleration than acceleration_factor allows"),
        )
        for is_kind, text in kinds:
            places = np.flatnonzero(is_kind)
            if places.size:
                where = f"{places.size} places, the first after counter {joined.sequence[places[0]]}"
                notices.append(f"{text} ({where}); windows end there")
        places = np.flatnonzero((missing > 0) | too_long | too_fast) + 1 - len(last)
        return [int(place) for place in places]

    def _cut(self) -> Iterator[Window]:
        stamps = self._run.stamps
        start = 0
        while True:
            stop = int(np.searchsorted(stamps, stamps[start] + self._length))
            end = self._end(stamps, stop)
            if end is None:
                break
            yield Window(self._run.slice(start, end + 1), 0, stop - start, self._number)
            self._number += 1
            start = stop
        self._run = self._run.slice(start)

    def _end(self, stamps: NDArray[np.int64], stop: int) -> int | None:
        """Return the last sample a window that stops at ``stop`` needs; None if it has not arrived."""
        if stop >= len(stamps):
            return None
        if not self._beyond:
            return stop
        end = int(np.searchsorted(stamps, stamps[stop] + self._beyond)) + 1
        return end if end < len(stamps) else None


class RowStream:
    """Turns samples into the rows of those windows that count.

    Args:
        robot: The arm.
        settings: Windows, error budget and assumptions.
        unknowns: Target and nuisance parameters.

    Attributes:
        model: Constants of the windows.
        origin: Stamp of the first sample ever [ns]; 0 before.
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings, unknowns: Unknowns):
        self.model = WindowModel(robot, settings, unknowns)
        self.origin = 0
        self._stream = SampleStream(robot, settings)
        self._is_empty = True
        self._rest_windows, self._rest_stamp = 0, 0

    def clear(self) -> None:
        """Discard the samples that are not yet part of a window; the count of windows at rest starts again."""
        self._stream.clear()
        self._rest_windows, self._rest_stamp = 0, 0

    def add(self, block: SampleBlock) -> tuple[list[Window], list[str]]:
        """Add a block; return the windows it completes and a sentence for each kind of event.

        Raises:
            InvalidSamples: The block has another number of joints.
        """
        if self._is_empty and len(block):
            self.origin, self._is_empty = int(block.stamps[0]), False
        return self._stream.add(block)

    def is_redundant(self, window: Window) -> bool:
        """Return whether the arm has rested so long that this window repeats others; one in a while still counts."""
        settings = self.model.settings
        block = window.block.slice(window.start, window.stop + 1)
        slow = self.model.sensors.velocity_error + settings.stiction_speed
        if not settings.rest_interval or np.any(np.abs(block.v) > slow):
            self._rest_windows, self._rest_stamp = 0, 0
            return False
        stamp = int(block.stamps[-1])
        self._rest_windows += 1
        if self._rest_windows > _REST_WINDOWS and stamp - self._rest_stamp < settings.rest_interval * 1e9:
            return True
        self._rest_stamp = stamp
        return False

    def build_rows(self, window: Window) -> Rows:
        """Build the rows of a window."""
        return build_rows(self.model, window.block, window.start, window.stop, window.number)
