"""Plots of pages, written as SVG: lines, bands and marks over two axes with round ticks.

Colours are variables of the page, so that a plot fits a light and a dark theme. It takes milliseconds where a library
for plots takes a second to load and a tenth of one for each plot.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

INK, MUTED, GRID, ACCENT, BAND, PRIOR, TRUTH, WARN = (
    f"var(--{name})" for name in ("ink", "muted", "grid", "accent", "band", "prior", "truth", "warn")
)
SERIES = tuple(f"var(--s{i})" for i in range(8))
SMALL, WIDE = (340.0, 176.0), (430.0, 190.0)
"""Width and height of a plot [page units]: about as on a phone, so that letters keep their size there, and half of
a page."""
DASHED, DOTTED, LONG = "3 2", "2 3", "6 2"
_RIGHT, _TOP, _LETTER = 12.0, 24.0, 11.0
_MARGIN = 0.05
"""Share of the range of the data that is left free at each end of an axis."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend.

    Attributes:
        label: What is explained.
        color: Its colour.
        shape: ``line``, ``band``, or a mark of :meth:`Plot.marks`.
        width: Width of a line [page units].
        dash: Its pattern; empty for none.
        opacity: Of a band.
    """

    label: str
    color: str
    shape: str = "line"
    width: float = 1.4
    dash: str = ""
    opacity: float = 1.0

    def html(self) -> str:
        """Return the entry as an element of a list, with a picture of 22 x 12."""
        if self.shape == "band":
            part = f'<rect y="1" width="22" height="10" style="fill:{self.color};fill-opacity:{self.opacity:g}"/>'
        elif self.shape == "line":
            part = _path("M0 6h22", self.color, min(self.width + 0.6, 4.0), self.dash)
        else:
            part = _mark(11.0, 6.0, self.shape, self.color, 3.0)
        return f'<li><svg class="swatch" viewBox="0 0 22 12">{part}</svg>{escape(self.label)}</li>'


class Axis:
    """Maps the numbers of one axis to places.

    Args:
        first: Where it begins [page units].
        last: Where it ends.
        is_log: Whether it is logarithmic.
        most: Largest number of steps between ticks.
    """

    def __init__(self, first: float, last: float, is_log: bool, most: int):
        self._first, self._last, self.is_log, self._most = first, last, is_log, most
        self._seen: list[float] = []
        self.lower, self.upper = 0.0, 1.0
        self.start: float | None = None
        self.end: float | None = None

    def show(self, values: ArrayLike) -> None:
        """Make room for numbers; numbers that are not finite, or not positive on a logarithmic axis, are left out."""
        array = np.ravel(np.asarray(values, dtype=float))
        array = array[np.isfinite(array) & ((array > 0.0) | (not self.is_log))]
        if array.size:
            self._seen += [float(array.min()), float(array.max())]

    def settle(self) -> None:
        """Choose the range: the data with a margin, and the ends that are set."""
        lower, upper = (min(self._seen), max(self._seen)) if self._seen else (0.1 if self.is_log else 0.0, 1.0)
        if self.is_log:
            spare = (upper / lower) ** _MARGIN if upper > lower else 1.5
            lower, upper = lower / spare, upper * spare
        else:
            spare = _MARGIN * (upper - lower) or 0.05 * abs(upper) or 0.05
            lower, upper = lower - spare, upper + spare
        self.lower = lower if self.start is None else self.start
        self.upper = upper if self.end is None else self.end

    def place(self, values: ArrayLike) -> Array:
        """Return the places of numbers; nan where there is none."""
        array, lower, upper = np.asarray(values, dtype=float), self.lower, self.upper
        if self.is_log:
            array, lower, upper = np.log(np.where(array > 0.0, array, np.nan)), math.log(lower), math.log(upper)
        share = (np.where(np.isfinite(array), array, np.nan) - lower) / (upper - lower)
        return np.asarray(self._first + (self._last - self._first) * share)

    def ticks(self) -> list[float]:
        """Return round numbers within the range."""
        if not self.is_log or self.upper < 8.0 * self.lower:
            return round_numbers(self.lower, self.upper, self._most)
        steps = (1.0, 2.0, 5.0) if self.upper < 300.0 * self.lower else (1.0,)
        first, last = math.floor(math.log10(self.lower)), math.ceil(math.log10(self.upper))
        stride = max(1, math.ceil((last - first) / 6))
        found = [step * 10.0**decade for decade in range(first, last + 1, stride) for step in steps]
        return [value for value in found if self.lower <= value <= self.upper]

    def names(self, ticks: Sequence[float]) -> list[str]:
        """Return what stands at ticks: as many decimals at each, but where each decade is a tick."""
        is_wide = self.is_log and self.upper >= 8.0 * self.lower
        return [text for tick in ticks for text in format_ticks([tick])] if is_wide else format_ticks(ticks)


def round_numbers(lower: float, upper: float, most: int) -> list[float]:
    """Return multiples of 1, 2, 2.5 or 5 times a power of ten in a range, at most ``most`` steps from end to end."""
    raw = (upper - lower) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(one for one in (1.0, 2.0, 2.5, 5.0, 10.0) if one * power >= raw * (1.0 - 1e-9))
    numbers = range(math.ceil(lower / step - 1e-9), math.floor(upper / step + 1e-9) + 1)
    return [number * step for number in numbers]


class Plot:
    """One plot, a drawing of its own: pages arrange plots by the width they have.

    Args:
        title: What it shows, with its unit.
        size: Width and height [page units].
        left: Space for labels on the left [page units].
        x_label: What the x axis is; empty where it is time.
        logs: Axes that are logarithmic: ``x``, ``y``, ``xy`` or none.
    """

    def __init__(
        self, title: str, size: tuple[float, float] = SMALL, left: float = 58.0, x_label: str = "", logs: str = ""
    ):
        self.title, self.size, self._x_label = title, size, x_label
        self._box = left, size[0] - _RIGHT, _TOP, size[1] - (40.0 if x_label else 24.0)
        self.x = Axis(self._box[0], self._box[1], "x" in logs, 5)
        self.y = Axis(self._box[3], self._box[2], "y" in logs, 5)
        self.y_names: Sequence[str] = ()
        self.has_columns = False
        self._bands: list[tuple[Array, Array, Array, str, float]] = []
        self._lines: list[tuple[Array, Array, str, float, str, str]] = []
        self._marks: list[tuple[Array, Array, str, str, float]] = []
        self._across: list[tuple[float, bool, str, float, str, str]] = []
        self._bars: list[tuple[Array, Array, str]] = []
        self.note = ""

    def line(
        self, x: ArrayLike, y: ArrayLike, color: str, width: float = 1.4, *, dash: str = "", label: str = ""
    ) -> None:
        """Draw a line; one with a label is read out where the pointer is."""
        self.x.show(x)
        self.y.show(y)
        self._lines.append((np.asarray(x, dtype=float), np.asarray(y, dtype=float), color, width, dash, label))

    def step(self, x: Array, y: Array, color: str, width: float = 1.4, label: str = "") -> None:
        """Draw a line of values that each hold until the next."""
        self.line(np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1], color, width, label=label)

    def band(
        self, x: Array, lower: Array, upper: Array, color: str, opacity: float = 1.0, is_step: bool = False
    ) -> None:
        """Fill between two lines."""
        if is_step:
            x, lower, upper = np.repeat(x, 2)[1:], np.repeat(lower, 2)[:-1], np.repeat(upper, 2)[:-1]
        self.x.show(x)
        self.y.show(lower)
        self.y.show(upper)
        self._bands.append((x, lower, upper, color, opacity))

    def marks(self, x: ArrayLike, y: ArrayLike, color: str, shape: str = "dot", size: float = 2.0) -> None:
        """Draw marks: ``dot``, ``square``, ``cross`` or ``dash``."""
        self.x.show(x)
        self.y.show(y)
        self._marks.append(
            (np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float)), color, shape, size)
        )

    def level(self, y: float, color: str, width: float = 1.0, dash: str = "") -> None:
        """Draw a horizontal line from end to end."""
        self.y.show(y)
        self._across.append((y, False, color, width, dash, ""))

    def instant(self, x: float, text: str = "", dash: str = "") -> None:
        """Draw a vertical line from end to end, with a text at its top."""
        self._across.append((x, True, MUTED, 0.8, dash, text))

    def bars(self, starts: Array, ends: Array, color: str) -> None:
        """Draw a horizontal bar in each row of :attr:`y_names`."""
        self.x.show(starts)
        self.x.show(ends)
        self._bars.append((starts, ends, color))

    def stems(self, values: Array, shown: NDArray[np.bool_]) -> None:
        """Draw values one beside the other, on a logarithmic axis, as stems with a dot; crosses where they are none."""
        numbers = np.arange(1, values.size + 1)
        floor = float(values[shown].min()) / 3.0 if shown.any() else 1e-3
        self.y.start = floor = min(floor, self.y.start or floor)
        for number in numbers[shown]:
            self.line([number, number], [floor, values[number - 1]], ACCENT, 2.5)
        self.marks(numbers[shown], values[shown], ACCENT, size=2.4)
        self.marks(numbers[~shown], np.full(int(np.count_nonzero(~shown)), floor), TRUTH, "cross")
        self.x.start, self.x.end = 0.4, values.size + 0.6
        self.has_columns = True

    def svg(self, name: str) -> str:
        """Return the drawing.

        Args:
            name: A word that is unique on the page; all ids start with it.
        """
        left, right, top, bottom = self._box
        if self.y_names:
            self.y.start, self.y.end = len(self.y_names) - 0.5, -0.5
        self.x.settle()
        self.y.settle()
        parts = [self._grid()]
        frame = f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}"/>'
        parts.append(f'<defs><clipPath id="{name}-clip">{frame}</clipPath></defs><g clip-path="url(#{name}-clip)">')
        for x, lower, upper, color, opacity in self._bands:
            edge = _points(np.concatenate([self.x.place(x), self.x.place(x)[::-1]]),
                           np.concatenate([self.y.place(upper), self.y.place(lower)[::-1]]))  # fmt: skip
            parts.append(f'<path d="{edge}Z" style="fill:{color};fill-opacity:{opacity:g}"/>')
        for starts, ends, color in self._bars:
            begin, end, rows = self.x.place(starts), self.x.place(ends), self.y.place(np.arange(len(starts)) - 0.34)
            high = 0.68 * (bottom - top) / len(self.y_names)
            parts += [_box(a, y, b - a, high, color) for a, b, y in zip(begin, end, rows, strict=True)]
        for value, is_vertical, color, width, dash, _ in self._across:
            at = float(self.x.place(value) if is_vertical else self.y.place(value))
            path = f"M{at:.2f} {bottom:g}V{top:g}" if is_vertical else f"M{left:g} {at:.2f}H{right:g}"
            parts.append(_path(path, color, width, dash))
        tracked: list[str] = []
        for x, y, color, width, dash, label in self._lines:
            path = _path(_points(self.x.place(x), self.y.place(y)), color, width, dash)
            if label:
                path = f'<g id="{name}-line{len(tracked)}">{path}</g>'
                tracked.append(label)
            parts.append(path)
        parts.append("</g>")
        for x, y, color, shape, size in self._marks:
            places = zip(self.x.place(x), self.y.place(y), strict=True)
            parts += [_mark(a, b, shape, color, size) for a, b in places if math.isfinite(a) and math.isfinite(b)]
        for value, is_vertical, _, _, _, text in self._across:
            if text and is_vertical:
                parts.append(_text(float(self.x.place(value)) + 3.0, top + 9.0, text, MUTED, "start"))
        if self.note:
            parts.append(_text(0.5 * (left + right), 0.5 * (top + bottom), self.note, MUTED, "middle"))
        hover = self._hover(name, tracked) if tracked else ""
        view = f'{hover} viewBox="0 0 {self.size[0]:g} {self.size[1]:g}"'
        return f'<svg role="img" aria-label="{escape(self.title)}" class="plot" {view}>{"".join(parts)}</svg>'

    def _grid(self) -> str:
        left, right, top, bottom = self._box
        parts = [_text(left, top - 8.0, self.title, INK, "start", 12.0)]
        unit, x_ticks = ("" if self._x_label else " s"), self.x.ticks()
        if self.has_columns:
            x_ticks = [float(k) for k in range(1, int(self.x.upper) + 1, 1 + int(self.x.upper) // 25)]
        for words, at in zip(self.x.names(x_ticks), self.x.place(x_ticks), strict=True):
            if not self.has_columns:
                parts.append(_path(f"M{at:.2f} {top:g}V{bottom:g}", GRID, 0.6))
            parts.append(_text(at, bottom + 14.0, words + unit, MUTED, "middle"))
        y_ticks = list(range(len(self.y_names))) if self.y_names else self.y.ticks()
        names = self.y_names if self.y_names else self.y.names(y_ticks)
        for words, at in zip(names, self.y.place(y_ticks), strict=True):
            if not self.y_names:
                parts.append(_path(f"M{left:g} {at:.2f}H{right:g}", GRID, 0.6))
            parts.append(_text(left - 6.0, at + 3.8, words, MUTED, "end"))
        if self._x_label:
            parts.append(_text(0.5 * (left + right), bottom + 31.0, self._x_label, MUTED, "middle", 11.5))
        parts.append(_path(f"M{left:g} {top:g}V{bottom:g}H{right:g}", GRID, 0.9))
        return "".join(parts)

    def _hover(self, name: str, labels: Sequence[str]) -> str:
        left, right, top, bottom = self._box
        data = {
            "x": [left, right, self.x.lower, self.x.upper],
            "y": [bottom, top, self.y.lower, self.y.upper],
            "log": self.y.is_log,
            "lines": [[f"{name}-line{k}", label] for k, label in enumerate(labels)],
        }
        return f'data-plot="{escape(json.dumps(data))}"'


def inline_plots(name: str, description: str, plots: Sequence[Plot], keys: Iterable[Key] = ()) -> str:
    """Return plots as an element of an HTML page, which stands in as many columns as there is room for.

    A line with a label is read out where the pointer is, by the script of the page; without scripts the plots stay.

    Args:
        name: A word that is unique on the page; all ids start with it.
        description: What the plots show, for people who cannot see them.
        plots: Plots of one size.
        keys: What the legend explains; none if empty.
    """
    items = "".join(key.html() for key in keys)
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    drawings = "".join(plot.svg(f"{name}{k}") for k, plot in enumerate(plots))
    group = f'role="group" aria-label="{escape(description)}" style="--cell:{0.88 * plots[0].size[0]:.0f}px"'
    return f'<div class="plots" {group}>{legend}<div class="grid">{drawings}</div></div>'


def envelope(x: Array, y: Array, bins: int = 400) -> tuple[Array, Array]:
    """At most ``2 bins`` points that look the same as the full curve: lowest and highest of each bin, in order.

    Args:
        x: (N,).
        y: (N,).
        bins: Number of bins.
    """
    if x.size <= 2 * bins:
        return x, y
    borders = np.linspace(0, x.size, bins + 1).astype(int)
    picked = []
    for first, last in zip(borders[:-1], borders[1:], strict=True):
        piece = y[first:last]
        picked += sorted({first + int(np.argmin(piece)), first + int(np.argmax(piece))})
    return x[picked], y[picked]


def format_ticks(values: Sequence[float]) -> list[str]:
    """Return the numbers of an axis as short as they can be, with as many decimals in each and a real minus sign."""
    largest = max(map(abs, values), default=0.0)
    decimals = next((d for d in range(7) if all(abs(v - round(v, d)) <= 1e-9 * largest for v in values)), None)
    spec = ".6g" if decimals is None or largest >= 1e6 else f".{decimals}f"
    return [f"{value + 0.0:{spec}}".replace("-", "−") for value in values]


def short_number(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, a real minus sign, and none before zero."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−") if math.isfinite(value) else "unbounded"


def _points(x: Array, y: Array) -> str:
    """Return the path through places; it is interrupted where one is not finite. A hundredth is finer than a screen."""
    parts, word = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(a) and math.isfinite(b):
            parts.append(f"{word}{a:.2f} {max(-1e5, min(1e5, b)):.2f}")
            word = "L"
        else:
            word = "M"
    return "".join(parts)


def _path(path: str, color: str, width: float, dash: str = "") -> str:
    dashes = f";stroke-dasharray:{dash}" if dash else ""
    return f'<path d="{path}" style="fill:none;stroke:{color};stroke-width:{width:g}{dashes}"/>'


def _box(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" style="fill:{color}"/>'


def _mark(x: float, y: float, shape: str, color: str, size: float) -> str:
    if shape == "dot":
        return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{size:g}" style="fill:{color}"/>'
    if shape == "square":
        return _box(x - size, y - size, 2.0 * size, 2.0 * size, color)
    if shape == "dash":
        return _path(f"M{x - size - 0.5:.2f} {y:.2f}h{2 * size + 1:g}", color, 1.6)
    if shape == "cross":
        left, d = f"M{x - size:.2f}", 2.0 * size
        return _path(f"{left} {y - size:.2f}l{d:g} {d:g}{left} {y + size:.2f}l{d:g} {-d:g}", color, 1.4)
    raise ValueError(f"a plot has no mark '{shape}'; there are dot, square, dash and cross")


def _text(x: float, y: float, text: str, color: str, anchor: str, size: float = _LETTER) -> str:
    style = f"font-size:{size:g}px;fill:{color};text-anchor:{anchor}"
    return f'<text x="{x:.2f}" y="{y:.2f}" style="{style}">{escape(text)}</text>'
