"""What a person sees in the terminal: progress with the time that is left, tables, and the summary at the end.

On a terminal lines end where it ends; anywhere else every sentence is a line of its own, and nothing is cut.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.settings import PAYLOAD
from sysid_ros.core.estimation.parameters.unknowns import Target
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports.limits import SAMPLING, describe_limits, find_limits
from sysid_ros.reports.payload import PayloadSummary, felt_torques, notices, summarize_payload
from sysid_ros.reports.payload_files import RULE, find_well_known, join_names
from sysid_ros.reports.result import IdentificationResult
from sysid_ros.reports.writer import REPORT, WrittenFiles

WIDTH = 80
"""Widest line of a summary on a terminal [characters]."""
QUIET = 10.0
"""Longest time without a line where there is no terminal [s]."""
HYPOTHESES = 4
"""Hypotheses about infeasible data that are printed; the report has all."""
_IN_CONTROLLERS = {Quantity.MASS, Quantity.COM}
_BAR = 20
_ENDLESS = 100_000
"""Width of lines that go to no terminal [characters]."""


def make_console(stream: TextIO | None = None, width: int | None = None) -> Console:
    """Return a console: as wide as the terminal, up to :data:`WIDTH`; without end where there is none.

    Args:
        stream: Where to print; None takes standard output.
        width: Width instead [characters].
    """
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if width is None:
        width = min(console.width, WIDTH) if console.is_terminal else _ENDLESS
    console.width = width
    return console


def show(*parts: RenderableType, stream: TextIO | None = None) -> None:
    """Print texts and tables."""
    make_console(stream).print(*parts, sep="\n")


def make_table(heads: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> Table:
    """Return a table: the first ``left`` columns begin at the left, the others end at the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left else "right", overflow="fold", header_style="bold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def hanging(prefix: str, text: str) -> RenderableType:
    """Return a text behind a prefix, whose later lines are indented as far as the first is by the prefix."""
    grid = Table.grid(Column(no_wrap=True), Column(overflow="fold"))
    grid.add_row(Text(prefix), Text(text))
    return grid


def working(text: str) -> Status:
    """Return a context that shows a person at a terminal the work in progress, and leaves nothing behind."""
    return make_console(sys.stderr).status(escape(text))


class _TimeLeft(ProgressColumn):
    """Time that is left: as stated, else from the speed so far."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        left = task.time_remaining if left is None else left
        return Text("" if left is None or task.finished else f"{duration_text(left)} left")


def duration_text(seconds: float) -> str:
    """Return a duration [s] in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class _TwoLines(Progress):
    """A line with the bar, and one with the present results."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["detail"]:
                yield Text(task.fields["detail"], no_wrap=True, overflow="ellipsis")


class ProgressDisplay:
    """What is being done, how far it is and how long it takes: in place on a terminal, else a line for every change.

    Where there is no terminal and nothing changes for long, a line says what still goes on, and how far it is.

    Args:
        stream: Where to print; None takes standard output.
        clock: Time [s]; the elapsed time starts with this object.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._console = make_console(stream)
        self._clock, self._start = clock, clock()
        self._last: tuple[str, str] | None = None
        self._percent = ""
        self._live: _TwoLines | None = None
        self._has_printed = threading.Event()
        self._watch: threading.Thread | None = None

    def update(self, text: str, share: float | None = None, detail: str = "", left: float | None = None) -> None:
        """Show the present state.

        Args:
            text: What is happening, a few words.
            share: Share of the work that is done, 0..1; None if unknown.
            detail: What is known by now; whole words are never cut off elsewhere than on a terminal.
            left: Time that is left [s]; None to derive it from the share and the time so far.
        """
        if not self._console.is_terminal:
            self._percent = "" if share is None else f"{100.0 * share:3.0f} %  "
            if (text, detail) != self._last:
                self._last = text, detail
                later = "" if left is None else f"  {duration_text(left)} left"
                line = "  ".join(filter(None, (text, detail)))
                self.message(f"[{self._clock() - self._start:6.1f} s] {self._percent}{line}{later}")
            if self._watch is None:
                self._watch = threading.Thread(target=self._say_what_goes_on, name="progress", daemon=True)
                self._watch.start()
            return
        if self._live is None:
            self._live = _TwoLines(
                TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
                BarColumn(bar_width=_BAR),
                TaskProgressColumn(show_speed=False),
                _TimeLeft(),
                console=self._console,
                expand=True,
                speed_estimate_period=120.0,
                redirect_stdout=self._console.file is sys.stdout,  # what goes elsewhere is to arrive there
                redirect_stderr=self._console.file is sys.stderr,
            )
            self._live.add_task("", total=None, detail="", left=None)
        (task,) = self._live.tasks
        done = {} if share is None else {"total": 1.0, "completed": share}
        if share is None:
            task.total = None  # which update() cannot take away: work of unknown size is not done
        self._live.update(task.id, description=escape(text), detail=detail, left=left, **done)  # type: ignore[arg-type]
        self._live.start()

    def message(self, text: str) -> None:
        """Print a line that stays: a warning, an alarm, a file name."""
        self._console.print(Text(text))
        self._console.file.flush()
        self._has_printed.set()

    def finish(self) -> None:
        """Leave the last state as it is and go on below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        watch, self._watch = self._watch, None
        if watch is not None:
            self._has_printed.set()
            watch.join()

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _say_what_goes_on(self) -> None:
        while self._watch is threading.current_thread():
            if not self._has_printed.wait(QUIET) and self._last is not None:
                self.message(f"[{self._clock() - self._start:6.1f} s] {self._percent}still {self._last[0]}")
            self._has_printed.clear()


@contextmanager
def watching(text: str, goes_on: Callable[[], bool] = lambda: True) -> Iterator[Callable[[float], bool]]:
    """Yield a function that shows a person at a terminal which share of some work is done, 0 to 1."""
    is_shown = sys.stderr.isatty()
    with ProgressDisplay(sys.stderr) as display:

        def watch(share: float) -> bool:
            if is_shown:
                display.update(text, share)
            return goes_on()

        yield watch


def mass_detail(mass: tuple[float, float, float] | None, prior: tuple[float, float] | None = None) -> str:
    """Return mass and bounds (lower, estimate, upper) [kg] drawn in the prior; nothing of nothing."""
    if mass is None:
        return ""
    lower, value, upper = mass
    text = f"mass {value:.3f} kg in [{lower:.3f}, {upper:.3f}]"
    if prior is None or not prior[1] > prior[0]:
        return text
    return f"{text}  {interval_bar(lower, value, upper, *prior)}"


def interval_bar(
    lower: float, value: float, upper: float, axis_lower: float, axis_upper: float, size: int = _BAR
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


def result_summary(result: IdentificationResult, hypotheses: Sequence[tuple[str, str]] | None = None) -> RenderableType:
    """Return the result: mass and CoM first, their uses, then every number and all warnings.

    Args:
        result: The result.
        hypotheses: Possible faults, each a sentence and its check, the likeliest first; None takes what the result
            has as its explanation.
    """
    if hypotheses is None:
        found = result.explanation
        hypotheses = [] if found is None else [(one.text, one.check) for one in found.hypotheses]
    if not result.is_usable:
        return Group(*_alarm_parts(result, hypotheses))
    tool = summarize_payload(result, result.robot.tool_frame)
    return Group(
        *_headline(result, tool),
        "",
        f"In the tool frame ({tool.frame})",
        _tool_table(tool, result.estimate.narrower),
        "",
        f"About the frame of the last joint ({result.estimate.frame}); narrower: than before the data",
        _parameter_table(result),
        "",
        *_closing_parts(result),
    )


def files_summary(result: IdentificationResult, written: WrittenFiles) -> RenderableType:
    """Return which files were written and which were not, and what to do next."""
    parts: list[RenderableType] = [hanging("note: ", sentence) for sentence in written.left_out]
    parts.append(Text(f"Files: {written.directory}", overflow="fold"))
    return Group(*parts, hanging("Next: ", next_step(result, written.directory)))


def next_step(result: IdentificationResult, folder: Path | str | None = None, has_checks: bool | None = None) -> str:
    """Return the next step with a result, in a sentence.

    Args:
        result: The result.
        folder: Where its files are.
        has_checks: Whether hypotheses with checks were shown; None looks into the result.
    """
    report = f"open {Path(folder) / REPORT} in a browser" if folder else "write the files, with --output"
    if not result.estimate.is_consistent:
        if has_checks is None:
            has_checks = result.explanation is not None and bool(result.explanation.hypotheses)
        first = "try the first check above; " if has_checks else ""
        return f"{first}{report}, for every window beside what the assumptions allow"
    if not result.is_identified:
        limits = find_limits(result)
        first = "change what limits the bounds, or " if limits else ""
        # Faster motion leaves more open between two samples, which costs mass.
        how = "more joints, for longer" if limits and limits[0][0] is SAMPLING else "more joints, faster or for longer"
        return (
            f"{first}move {how}, and identify again; `sysid identifiability --model "
            f"{result.robot.name} --data RECORDING --unknown payload` names a motion that would help"
        )
    unknown = _IN_CONTROLLERS - find_well_known(summarize_payload(result, result.robot.tool_frame))
    if unknown:
        return f"{report}; change what limits the bounds, for {join_names(unknown)} as controllers need them"
    return f"{report}; payload_* are for controllers, robot_with_payload.urdf for planners"


def _headline(result: IdentificationResult, tool: PayloadSummary) -> list[RenderableType]:
    what = "Payload" if result.estimate.target == PAYLOAD else "Last body with payload"
    mass, narrower, likely = tool.mass, result.estimate.narrower, result.statistical
    kilograms = _outward(float(mass.lower), float(mass.upper), 2)
    first = f"{what}  {float(mass.values):.2f} kg"
    if likely is not None and not np.isnan(likely.lower[0]):
        first += f"   likely {_outward(likely.lower[0], likely.upper[0], 2)} ({100.0 * likely.confidence:.0f} %)"
    first += f"   guaranteed {kilograms}"
    middle = ", ".join(f"{1e3 * value:.0f}" for value in tool.com.values) + " mm"
    ranges = [
        f"{axis} {_outward(1e3 * low, 1e3 * high, 0)}"
        for axis, low, high in zip("xyz", tool.com.lower, tool.com.upper, strict=True)
    ]
    second = (
        f"{'CoM':{len(what)}}  {middle if Quantity.COM in narrower else 'not known'}   guaranteed {', '.join(ranges)}"
    )
    unknown = _IN_CONTROLLERS - find_well_known(tool)
    uses = "the payload setting of a controller (payload_*), motion that is planned and certified with these bounds"
    if unknown:
        uses = (
            "motion that is planned and certified with these bounds; not for the payload setting of a controller, for "
            f"which {join_names(unknown)} {'is' if len(unknown) == 1 else 'are'} not well known ({RULE})"
        )
    parts: list[RenderableType] = [Text(first, style="bold"), Text(second, style="bold"), hanging("Good for: ", uses)]
    torques = felt_torques(result.robot, tool, tool.parameters.values, result.robot.home)
    if np.all(np.isfinite(torques)):
        joint = int(torques.argmax())
        text = f"at most {_up(torques[joint])} Nm, in {result.robot.joint_names[joint]} at the home posture"
        parts.append(hanging("A controller with this load sees external torques of ", text))
    if likely is not None and np.isnan(likely.lower[0]):
        parts.append(hanging("Likely: ", likely.absence))
    return parts


def _up(value: float) -> str:
    """Write a number, rounded up to two digits."""
    places = 1 - int(np.floor(np.log10(max(value, 1e-3))))
    return f"{np.ceil(value * 10.0**places) / 10.0**places:.{max(places, 0)}f}"


def round_up(value: float, digits: int) -> float:
    """Return a number with so many digits that is no smaller."""
    unit = 10.0 ** (np.floor(np.log10(max(abs(value), 1e-12))) + 1 - digits)
    return float(f"{np.ceil(value / unit - 1e-9) * unit:.{digits}g}")


def _outward(lower: float, upper: float, places: int) -> str:
    """Write a range, rounded outwards, with a digit more where it is narrow."""
    places += upper - lower < 10.0 ** (1 - places)
    scale = 10.0**places
    if not (np.isfinite(lower) and np.isfinite(upper)):
        return "unbounded"
    low, high = np.floor(lower * scale) / scale + 0.0, np.ceil(upper * scale) / scale + 0.0
    return f"{low:.{places}f} to {high:.{places}f}"


def _alarm_parts(result: IdentificationResult, hypotheses: Sequence[tuple[str, str]]) -> list[RenderableType]:
    estimate, windows = result.estimate, result.estimate.number_of_windows
    head = "NOT IDENTIFIED" if estimate.is_consistent else "ALARM"
    rows = f"windows: {windows}, data: {estimate.data_seconds:.1f} s, method: {estimate.method}"
    return [
        Text(f"{head}: no usable estimate for {result.robot.name}", style="bold red"),
        Text(result.reason_unusable),
        *([Text(rows)] if windows else []),  # an alarm may forget them
        *(_limits_parts(result) if estimate.is_consistent else []),
        *_hypotheses_parts(result, hypotheses),
        *(hanging("warning: ", warning) for warning in notices(result)),
    ]


def _hypotheses_parts(result: IdentificationResult, hypotheses: Sequence[tuple[str, str]]) -> list[RenderableType]:
    if result.explanation is None and not hypotheses:
        return []
    untried = () if result.explanation is None else result.explanation.untried
    text = "each changes one assumption by as little as makes the data feasible; none is proven"
    if not hypotheses:
        text = "no single changed assumption makes the data feasible; several may be wrong, or one that is not tried"
    if untried:
        names = ", ".join(one.value.replace("_", " ") for one in untried)
        text = f"{text if hypotheses else 'none of those that were tried'}; stopped on request before all of {names}"
    parts: list[RenderableType] = ["", hanging("What could be wrong: ", text)]
    for number, (one, check) in enumerate(hypotheses[:HYPOTHESES], start=1):
        parts += [hanging(f"{number}. ", one), hanging("   check: ", check)]
    return [*parts, ""]


def _tool_table(tool: PayloadSummary, narrower: frozenset[Quantity]) -> Table:
    """Return a table of the payload; quantities that are no better known than before the data have bounds only."""
    cells = []
    for quantity, name, unit, one in tool.rows:
        value = _fixed(one.values) if quantity in narrower else "not known"
        cells.append((name.replace("centre of mass", "CoM"), unit, value, _fixed(one.lower), _fixed(one.upper)))
    return make_table(("", "unit", "estimate", "lower", "upper"), cells, left=2)


def _parameter_table(result: IdentificationResult) -> Table:
    estimate, truth = result.estimate, result.truth
    heads = ["", "unit", "estimate", "lower", "upper", "narrower"] + ([] if truth is None else ["truth", "inside"])
    rows = []
    for i, (name, unit) in enumerate(zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)):
        numbers = estimate.values[i], estimate.lower[i], estimate.upper[i]
        row = [name, unit, *map(_fixed, numbers), _factor(result.shrinkage[i])]
        if truth is not None:
            row += [_fixed(truth[i]), "yes" if result.holds_truth[i] else "NO"]
        rows.append(row)
    return make_table(heads, rows, left=2)


def body_summary(target: Target, estimate: ParameterEstimate) -> RenderableType:
    """Return the result for another body than the payload: its parameters, and combinations seen in joint torques."""
    title = Text(f"{target.label}" + (f", about the frame of {target.frame}" if target.frame else ""), style="bold")
    if not estimate.is_consistent:
        return Group(title, hanging("ALARM: ", estimate.alarm_text))
    if estimate.status in (EstimateStatus.NO_DATA, EstimateStatus.PRIOR_ONLY):
        return Group(title, hanging("NOT IDENTIFIED: ", estimate.shortfall))
    parts: list[RenderableType] = [title]
    if target.body:
        columns = (estimate.names, estimate.units, estimate.values, estimate.lower, estimate.upper, target.prior.width)
        parts += ["", _body_table("parameter", zip(*columns, strict=True))]
    found = estimate.combinations
    if found is not None:
        columns = (found.formulas, found.units, found.values, found.lower, found.upper, found.prior.width)
        parts += ["", "What joint torques tell:", _body_table("combination", zip(*columns, strict=True))]
    seconds = f"{estimate.data_seconds:.1f} s, {estimate.number_of_windows} windows"
    bounds = hanging("Bounds: ", f"{estimate.guarantee} ({estimate.method}); narrower: than before the data")
    return Group(*parts, "", bounds, hanging("Data: ", seconds))


def _body_table(what: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    cells = []
    for name, unit, value, lower, upper, before in rows:
        factor = _factor(before / (upper - lower)) if upper > lower else "exact"
        cells.append((name, unit, *(f"{number:.5g}" for number in (value, lower, upper)), factor))
    return make_table((what, "unit", "estimate", "lower", "upper", "narrower"), cells, left=2)


def _factor(value: float) -> str:
    return f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def _fixed(value: Any) -> str:
    """Return a number with six decimals, without a minus before zeros."""
    return f"{round(float(value), 6) + 0.0:.6f}" if np.isfinite(value) else "unbounded"


def _limits_parts(result: IdentificationResult) -> list[RenderableType]:
    texts = describe_limits(result)
    prefixes = ["What limits the bounds: ", *([" " * 24] * len(texts))]
    return [hanging(prefix, text) for prefix, text in zip(prefixes, texts, strict=False)]


def _closing_parts(result: IdentificationResult) -> list[RenderableType]:
    estimate = result.estimate
    text = estimate.guarantee
    if estimate.is_guaranteed:
        text = "guaranteed as long as the assumptions hold that estimate.yaml and the report list"
    parts: list[RenderableType] = [hanging("Bounds: ", f"{text} ({estimate.method})")]
    data = (
        f"{estimate.data_seconds:.1f} s, {estimate.number_of_windows} windows, "
        f"condition number {estimate.condition_number:.3g}"
    )
    parts.append(hanging("Data: ", data))
    if result.agreement is not None:
        parts.append(hanging("Errors: ", result.agreement.text))
    parts += _limits_parts(result)
    if result.truth is not None:
        parts.append(Text(f"Truth (simulation) inside the bounds: {result.holds_truth.sum()} of 10"))
    for text, prefix in [
        (estimate.alarm_text, "ALARM: "),
        (estimate.shortfall, "NOT IDENTIFIED: "),
        *((warning, "warning: ") for warning in notices(result)),
    ]:
        parts += [hanging(prefix, text)] if text else []
    return parts
