"""Samples as they arrive, cut into momentum windows that never span a gap, and the rows of the windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.errors import SMOOTH_STEP
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.model.robot import RobotModel

_NARROWER = 0.9
"""A box with a side below this part of the one in use is worth new constants of the windows."""
_REST_WINDOWS = 5
"""Windows at rest that count before most of them are left out."""
_LONGEST_REST = 60.0
"""A window counts at least this often [s] while the arm rests, whatever its torque: offsets may drift."""


LONGEST_STEP = 0.05
"""Samples further apart than this are never joined, unless ``max_gap`` says so [s]: a window of 0.1 s has two steps.

Within one step a smooth torque leaves the range of the samples at its ends; over two the ranges cover it.
"""
_GAP_FACTOR = 1.5
"""A step of so many median steps is a gap: one sample missing without a jump of the counter makes two."""
_MEDIAN_STEPS = 21
"""Number of the last steps of which the median is taken."""
_OF_THE_RATE = ("quadrature", "torque_interpolation", "jitter", "coulomb")
"""Error terms that a higher sampling rate makes smaller."""


class SampleStream:
    """Joins blocks of samples and cuts them into windows, the same ones for any size of the blocks.

    Late and duplicate samples are left out. A missing sample, a long step, a step with more acceleration than assumed
    or a restart of counter or clock ends a run of contiguous samples; a remainder too short for a window is lost. A
    step is long if it takes more than ``max_gap``; where that is 0, more than 1.5 times the median of the last 21
    steps, but at least ``SMOOTH_STEP`` and at most ``LONGEST_STEP``.

    Attributes:
        count: Samples taken so far.
        gaps: Places at which a run ended so far.
        longest_run: Duration of the longest run [s].
        fastest: Largest measured speed of each joint, (n,) [rad/s].
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings):
        self._settings = settings
        self._n = robot.n
        self._velocity_error = robot.sensors.velocity_error
        self._acceleration = settings.acceleration_factor * robot.limits.a_max
        self._length = round(max(settings.window_duration, robot.sensors.averaging_time) * 1e9)
        self._beyond = round((settings.torque_lag + settings.torque_lag_tolerance) * 1e9)
        self._run = SampleBlock.empty(robot.n)
        self._run_start: int | None = None
        self._last: tuple[int, int] | None = None
        self._number = 0
        self._recent_steps = np.zeros(0, dtype=np.int64)
        self._breaks: dict[str, tuple[int, int, int, int]] = {}
        self._most = 0.0  # change of velocity, as a multiple of the allowed one
        self.restart()

    def restart(self) -> None:
        """Discard the samples that are not yet part of a window and all counts; the numbering continues."""
        self._end_run()
        self.count, self.gaps, self.longest_run = 0, 0, 0.0
        self.fastest = np.zeros(self._n)

    @property
    def period(self) -> float:
        """Median of the last steps between samples [s]; infinite before the second sample."""
        return 1e-9 * float(np.median(self._recent_steps)) if self._recent_steps.size else np.inf

    @property
    def largest_gap(self) -> float:
        """No longer step is ever joined [s]."""
        return self._settings.max_gap or LONGEST_STEP

    def describe_shortfall(self) -> str:
        """Return why there is no window, in one sentence."""
        if self.count < 2:
            return "no samples have come" if not self.count else "only one sample has come"
        rate = f"samples come every {self.period:.3g} s ({1.0 / self.period:.3g} Hz)"
        if self.period > self.largest_gap:
            return f"{rate}; a window takes steps of at most {self.largest_gap:g} s: sample faster"
        gaps = f", with {self.gaps} gaps between {self.count} samples" if self.gaps else ""
        needed = 1e-9 * (self._length + self._beyond) + self.period
        return (
            f"the longest recording without a gap lasts {self.longest_run:.3g} s{gaps}; {rate}, and the first window "
            f"takes {needed:.3g} s: record for longer"
        )

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
                self.gaps += 1
                self._end_run()
            self._run = SampleBlock.concatenate([self._run, block.slice(first, last)])
            self._run_start = int(block.stamps[first]) if self._run_start is None else self._run_start
            self.longest_run = max(self.longest_run, 1e-9 * (int(block.stamps[last - 1]) - self._run_start))
            windows.extend(self._cut())
        self.count += len(block)
        self.fastest = np.maximum(self.fastest, np.max(np.abs(block.v), axis=0))
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
        if self._last is None:
            return
        stamp, counter = self._last
        if block.stamps[0] <= stamp:
            notices.append(f"the clock was set back by {(stamp - block.stamps[0]) * 1e-9:.6g} s; windows end there")
        elif block.sequence[0] <= counter:
            notices.append(f"the counter restarted at {block.sequence[0]} after {counter}; windows end there")
        else:
            return
        self.gaps += 1
        self._end_run()

    def _end_run(self) -> None:
        self._run = self._run.slice(len(self._run))
        self._run_start = None

    def _find_breaks(self, block: SampleBlock, notices: list[str]) -> list[int]:
        last = self._run.slice(len(self._run) - 1) if len(self._run) else self._run
        joined = SampleBlock.concatenate([last, block])
        steps = np.diff(joined.stamps)
        missing = np.diff(joined.sequence) - 1
        too_long = self._find_long_steps(steps, missing > 0)
        excess = np.abs(np.diff(joined.v, axis=0)) - 2.0 * self._velocity_error
        excess = np.max(excess / (self._acceleration * np.maximum(steps[:, None], 1) * 1e-9), axis=1)
        too_fast = (excess > 1.0) & (missing == 0) & ~too_long
        self._most = max(self._most, float(excess[too_fast].max(initial=0.0)))
        kinds = {
            "samples missing": missing * (missing > 0),
            f"steps longer than {self._gap_limit:.3g} s": too_long & (missing == 0),
            "steps with more acceleration than acceleration_factor allows": too_fast,
        }
        for text, amounts in kinds.items():
            places = np.flatnonzero(amounts)
            if places.size:
                # Of thousands, some ten lines are reported: the first one, and one whenever they have doubled.
                first, count, amount, told = self._breaks.get(text, (int(joined.sequence[places[0]]), 0, 0, 0))
                count, amount = count + places.size, amount + int(amounts.sum())
                if count >= 2 * told:
                    where = f"{count} {'place' if count == 1 else 'places'}, the first after counter {first}"
                    cure = ""
                    if amounts is too_fast:
                        factor = np.ceil(10.0 * self._most * self._settings.acceleration_factor) / 10.0
                        cure = f", unless --set acceleration_factor={factor:g} is true of this arm"
                    notices.append(f"{amount} {text} ({where}); windows end there{cure}")
                    told = count
                self._breaks[text] = first, count, amount, told
        places = np.flatnonzero((missing > 0) | too_long | too_fast) + 1 - len(last)
        return [int(place) for place in places]

    def _find_long_steps(self, steps: NDArray[np.int64], is_lost: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which steps are too long to join, (K,); steps over lost samples say nothing about the rate."""
        largest = round(self.largest_gap * 1e9)
        known = np.concatenate([self._recent_steps, steps[~is_lost]])
        too_long = steps > (largest if self._settings.max_gap else round(SMOOTH_STEP * 1e9))
        if not self._settings.max_gap:
            position = self._recent_steps.size + np.cumsum(~is_lost)
            for k in np.flatnonzero(too_long & ~is_lost):
                recent = known[max(0, position[k] - _MEDIAN_STEPS) : position[k]]
                too_long[k] = steps[k] > min(_GAP_FACTOR * float(np.median(recent)), largest)
        self._recent_steps = known[-_MEDIAN_STEPS:]
        return too_long

    @property
    def _gap_limit(self) -> float:
        """Longest step that the next one may take [s]."""
        return self._settings.max_gap or min(max(_GAP_FACTOR * self.period, SMOOTH_STEP), LONGEST_STEP)

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

    Attributes:
        prior_model: Constants of the windows whose error budgets hold for every target in the prior.
        model: Constants of the next windows.
        reference: Stamp from which the torque offset may drift [ns]: the start of the first window with rows; None
            before.
        origin: Stamp of the first sample ever [ns]; 0 before.
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings, unknowns: Unknowns):
        self.prior_model = WindowModel(robot, settings, unknowns)
        self.origin = 0
        self._stream = SampleStream(robot, settings)
        self._is_empty = True
        self.clear()

    def clear(self) -> None:
        """Discard the samples that are not yet part of a window and all counts, that of windows at rest too."""
        self._stream.restart()
        self.model, self._box = self.prior_model, self.prior_model.unknowns.prior
        self._rest_windows, self._rest_stamp, self._rest_torque = 0, 0, np.zeros(0)
        self.reference: int | None = None
        self._errors = np.zeros(len(ERROR_TERMS))
        self._rows, self._seconds = 0, 0.0

    def add(self, block: SampleBlock) -> tuple[list[Window], list[str]]:
        """Add a block; return the windows it completes and a sentence for each kind of event.

        Raises:
            InvalidSamples: The block has another number of joints.
        """
        if self._is_empty and len(block):
            self.origin, self._is_empty = int(block.stamps[0]), False
        return self._stream.add(block)

    def is_redundant(self, window: Window) -> bool:
        """Return whether the arm has rested so long that this window repeats others; one in a while still counts.

        After ``rest_interval`` one counts whose mean torque differs from that of the last one by more than sensor and
        friction explain: another payload. One counts in every minute in any case.
        """
        settings, sensors = self.model.settings, self.model.sensors
        if not settings.rest_interval or not self.is_at_rest(window):
            self._rest_windows = 0
            return False
        stamp = int(window.block.stamps[window.stop])
        tau = window.block.tau[window.start : window.stop + 1].mean(axis=0)
        self._rest_windows += 1
        if self._rest_windows > _REST_WINDOWS:
            error = sensors.lasting_error + sensors.effort_relative_error * np.abs(tau)
            is_new = np.any(np.abs(tau - self._rest_torque) > error + 2.0 * self.model.unknowns.coulomb_upper)
            interval = settings.rest_interval if is_new else max(settings.rest_interval, _LONGEST_REST)
            if stamp - self._rest_stamp < interval * 1e9:
                return True
        self._rest_stamp, self._rest_torque = stamp, tau
        return False

    def is_at_rest(self, window: Window) -> bool:
        """Return whether no velocity in a window exceeds its error and the stiction speed."""
        slow = self.model.measured.velocity_error + self.model.settings.stiction_speed
        return not np.any(np.abs(window.block.v[window.start : window.stop + 1]) > slow)

    def narrow(self, box: Box) -> None:
        """Make the error budgets of the next windows for a target in a box that data have proven, (P,).

        Only where it is much narrower than the one in use, and until :meth:`clear`.
        """
        if self.model.unknowns.target.body and np.any(box.radius < _NARROWER * self._box.radius):
            self.model, self._box = self.prior_model.narrowed(box), box

    def build_rows(self, window: Window) -> Rows:
        """Build the rows of a window."""
        if self.reference is None:
            self.reference = window.start_stamp
        rows = build_rows(self.model, window, self.reference)
        self._errors += rows.errors.sum(axis=0)
        self._rows += 1
        self._seconds += float(rows.duration[0])
        return rows

    def describe_shortfall(self, what: str) -> str:
        """Return why the samples do not suffice, in one sentence.

        ``what`` names the quantities whose bounds are no narrower than the prior's.
        """
        if not self._rows:
            return self._stream.describe_shortfall()
        period, speed = self._stream.period, self._stream.fastest
        joint = int(np.argmax(speed))
        text = (
            f"the bounds of {what} are no narrower than before the data: {self._rows} windows, {self._seconds:.3g} s "
            f"at {1.0 / period:.3g} Hz, the fastest joint {self.model.joint_names[joint]} at {speed[joint]:.3g} rad/s"
        )
        if speed[joint] <= float(self.model.measured.velocity_error[joint]) + self.model.settings.stiction_speed:
            return f"{text}; the arm has to move"
        if ERROR_TERMS[int(np.argmax(self._errors))] in _OF_THE_RATE and period > SMOOTH_STEP:
            return f"{text}; most of the error arises between samples: sample faster"
        return f"{text}; move more joints, faster or for longer"
