"""What a person sees in the terminal: live progress, and the table at the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

import numpy as np

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports.payload import Bounded, PayloadSummary, notices, summarize_payload
from sysid_ros.reports.result import IdentificationResult

WIDTH = 80
"""Widest line of a table or a sentence [characters]."""
PROGRESS_WIDTH = 110
"""Widest line of progress [characters]; a narrower terminal gets what fits."""
BAR = 20
"""Width of the picture of the mass interval [characters]."""
HYPOTHESES = 4
"""Hypotheses about infeasible data that are printed; the report has all."""
_CLOCK_WIDTH = len("[9999.9 s] ")


class ProgressDisplay:
    """One line of progress: rewritten in place on a terminal, one line per change on a pipe.

    Args:
        stream: Where to print; None takes standard output.
        prior_mass: Mass interval of the prior (lower, upper) [kg], to draw the shrinking interval in; None draws none.
        clock: Time [s]; the elapsed time starts with this object.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        prior_mass: tuple[float, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._prior = prior_mass
        self._clock = clock
        self._start = clock()
        self._last = ""
        self._is_open = False

    def update(
        self,
        phase: str,
        trajectory: int = 0,
        trajectories: int = 0,
        mass: tuple[float, float, float] | None = None,
    ) -> None:
        """Show the present state.

        Args:
            phase: What is happening, a few words.
            trajectory: Number of the trajectory, from 1; 0 before the first.
            trajectories: How many there may be; 0 when unknown.
            mass: Lower bound, estimate and upper bound of the mass [kg]; None before the first estimate.
        """
        room = PROGRESS_WIDTH
        if self._is_terminal:
            room = min(room, shutil.get_terminal_size((PROGRESS_WIDTH + 1, 24)).columns - 1)
        state = self._state((phase, trajectory, trajectories), mass, room - _CLOCK_WIDTH)
        if not self._is_terminal and state == self._last:
            return
        line = f"[{self._clock() - self._start:6.1f} s] {state}"
        self._last = state
        line = line.rstrip()
        if self._is_terminal:
            self._write("\r\x1b[2K" + line[:room])
            self._is_open = True
        else:
            self._write(line[:room] + "\n")

    def message(self, text: str) -> None:
        """Print a line that stays: a warning, an alarm, a file name."""
        self.finish()
        self._write(text + "\n")

    def finish(self) -> None:
        """Leave the last line of progress as it is and go to the next."""
        if self._is_open:
            self._write("\n")
            self._is_open = False

    def _state(self, step: tuple[str, int, int], mass: tuple[float, float, float] | None, room: int) -> str:
        """Return the line without its clock in so many characters; the mass is what may not be cut."""
        phase, trajectory, trajectories = step
        parts = [f"{phase:<20.40}"]
        if trajectory:
            number = f"trajectory {trajectory}" + (f"/{trajectories}" if trajectories else "")
            parts.append(f"{number:<16}")
        if mass is not None:
            lower, value, upper = mass
            parts.append(f"mass {value:.3f} kg in [{lower:.3f}, {upper:.3f}]")
            parts.append(self._bar(lower, value, upper))
        line = "  ".join(part for part in parts if part)
        if len(line) > room and mass is not None:  # a picture cut in half says something wrong
            line = "  ".join(parts[:-1])
        excess = len(line) - room
        return line if excess <= 0 else parts[0][: max(len(parts[0]) - excess, 8)] + line[len(parts[0]) :]

    def _bar(self, lower: float, value: float, upper: float) -> str:
        if self._prior is None or not self._prior[1] > self._prior[0]:
            return ""
        return interval_bar(lower, value, upper, *self._prior)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def interval_bar(
    lower: float, value: float, upper: float, axis_lower: float, axis_upper: float, size: int = BAR
) -> str:
    """Draw an interval with its estimate on an axis: ``|   [==*=]     |``."""

    def cell(x: float) -> int:
        part = (x - axis_lower) / (axis_upper - axis_lower)
        return int(np.clip(np.floor(part * size), 0, size - 1)) if np.isfinite(part) else -1

    first, middle, last = cell(lower), cell(value), cell(upper)
    cells = [" "] * size
    if first >= 0 and last >= 0:
        cells[first : last + 1] = "=" * (last - first + 1)
        if last > first:
            cells[first], cells[last] = "[", "]"
    if middle >= 0:
        cells[middle] = "*"
    return "|" + "".join(cells) + "|"


def result_table(result: IdentificationResult) -> str:
    """Return the table at the end: parameters, centre of mass, principal moments, shrinkage; at most 80 columns."""
    if not result.is_usable:
        return "\n".join(_alarm_lines(result))
    robot = result.robot
    tool = summarize_payload(result, robot.tool_frame)
    lines = [
        f"{_what(result)} of {robot.name}, about the frame of the last joint ({result.estimate.frame})",
        "",
        *_parameter_lines(result),
        "",
        f"Payload in the tool frame ({tool.frame})",
        *_summary_lines(tool),
        "",
        *_closing_lines(result),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _what(result: IdentificationResult) -> str:
    return "Payload" if result.estimate.target == "payload" else "Last body with payload"


def _alarm_lines(result: IdentificationResult) -> list[str]:
    estimate = result.estimate
    head = "NOT IDENTIFIED" if estimate.is_consistent else "ALARM"
    return [
        f"{head}: no usable estimate for {result.robot.name}",
        *_wrapped("", result.reason_unusable),
        f"windows: {estimate.number_of_windows}, data: {estimate.data_seconds:.1f} s, method: {estimate.method}",
        *_explanation_lines(result),
        *(line for warning in notices(result) for line in _wrapped("warning: ", warning)),
    ]


def _explanation_lines(result: IdentificationResult) -> list[str]:
    found = result.explanation
    if found is None:
        return []
    lines = ["", *_wrapped("What could be wrong: ", found.text)]
    for number, one in enumerate(found.hypotheses[:HYPOTHESES], start=1):
        lines += [*_wrapped(f"{number}. ", one.text), *_wrapped("   check: ", one.check)]
    return [*lines, ""]


def _parameter_lines(result: IdentificationResult) -> list[str]:
    estimate, truth = result.estimate, result.truth
    header = f"{'':<4}{'unit':<7}{'estimate':>11}{'lower':>11}{'upper':>11}{'width':>9}{'shrunk':>8}"
    lines = [header + ("" if truth is None else f"{'truth':>11}{'inside':>8}")]
    lines.append("-" * len(lines[0]))
    for i, (name, unit) in enumerate(zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)):
        value, lower, upper = estimate.values[i], estimate.lower[i], estimate.upper[i]
        line = f"{name:<4}{unit:<7}{_fixed(value)}{_fixed(lower)}{_fixed(upper)}{upper - lower:>9.3g}"
        line += f"{_factor(result.shrinkage[i]):>8}"
        if truth is not None:
            line += f"{_fixed(truth[i])}{'yes' if lower <= truth[i] <= upper else 'NO':>8}"
        lines.append(line)
    return lines


def _factor(value: float) -> str:
    return f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def _summary_lines(summary: PayloadSummary) -> list[str]:
    rows = [("mass", "kg", summary.mass)]
    rows += [(f"com {axis}", "m", _entry(summary.com, i)) for i, axis in enumerate("xyz")]
    rows += [(f"principal moment {i + 1}", "kg m^2", _entry(summary.principal_moments, i)) for i in range(3)]
    lines = [f"{'':<20}{'unit':<8}{'estimate':>11}{'lower':>11}{'upper':>11}"]
    lines.append("-" * len(lines[0]))
    for name, unit, bounded in rows:
        numbers = (float(bounded.values), float(bounded.lower), float(bounded.upper))
        lines.append(f"{name:<20}{unit:<8}{''.join(map(_fixed, numbers))}")
    for i in range(3):
        x, y, z = summary.principal_axes[:, i]
        lines.append(f"principal axis {i + 1:<5}{'-':<8}  ({x:+.3f}, {y:+.3f}, {z:+.3f})  point estimate only")
    return lines


def _entry(bounded: Bounded, index: int) -> Bounded:
    return Bounded(bounded.values[index], bounded.lower[index], bounded.upper[index])


def _fixed(value: float) -> str:
    """Return a number with six decimals, 11 characters wide, without a minus before zeros."""
    return f"{round(float(value), 6) + 0.0:>11.6f}" if np.isfinite(value) else f"{'unbounded':>11}"


def _closing_lines(result: IdentificationResult) -> list[str]:
    estimate = result.estimate
    factors = result.shrinkage
    lines = _wrapped(
        "Bounds against the prior: ",
        f"mass {_factor(factors[0])} narrower; first moments {_factor(factors[1:4].min())} to "
        f"{_factor(factors[1:4].max())}; inertias {_factor(factors[4:].min())} to {_factor(factors[4:].max())}",
    )
    lines += _wrapped(f"Bounds ({estimate.method}): ", estimate.guarantee)
    lines.append(
        f"From {estimate.data_seconds:.1f} s of data, {estimate.number_of_windows} windows, "
        f"condition number {estimate.condition_number:.3g}"
    )
    if result.truth is not None:
        inside = int(np.sum((estimate.lower <= result.truth) & (result.truth <= estimate.upper)))
        lines.append(f"Truth (simulation) inside the bounds: {inside} of 10")
    for text, prefix in [
        (estimate.alarm_text, "ALARM: "),
        (estimate.shortfall, "NOT IDENTIFIED: "),
        *((warning, "warning: ") for warning in notices(result)),
    ]:
        lines += _wrapped(prefix, text) if text else []
    return lines


def _wrapped(prefix: str, text: str) -> list[str]:
    """Text in lines of at most :data:`WIDTH` characters, the later ones indented as the prefix."""
    lines, line = [], prefix
    for word in text.split():
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(prefix)
        line += word + " "
    return [*lines, line.rstrip()]
