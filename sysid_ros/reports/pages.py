"""What pages are made of: templates, whose values are escaped, and figures as inline SVG.

Figures take their colours from the page, so that they fit a light and a dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray


def render(template: str, **values: Any) -> str:
    """Fill in a template of ``reports/templates``.

    Args:
        template: Name of its file.
        values: What it asks for, by name.
    """
    return _ENVIRONMENT.get_template(template).render(**values)


def format_number(value: float, digits: int) -> str:
    """Return a number with so many decimals, a real minus sign, and none before zeros."""
    if not np.isfinite(value):
        return "unbounded"
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def to_sentence(text: str) -> str:
    """Return a text with a capital letter, unless it begins with the name of a joint, and a full stop."""
    text = text.strip()
    is_word = text.split(" ", 1)[0].rstrip(",;:").isalpha()
    end = "" if text.endswith((".", "!", "?")) or not text else "."
    return (text[:1].upper() + text[1:] if is_word else text) + end


def square_units(text: str) -> str:
    """Return a text with its ``^2`` raised."""
    return text.replace("^2", "²")


_ENVIRONMENT = Environment(
    loader=PackageLoader("sysid_ros.reports"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters.update(number=format_number, sentence=to_sentence, squared=square_units)


Array = NDArray[np.float64]

# Colours are placeholders: each stands for a CSS variable of the page.
INK, MUTED, GRID, ACCENT, BAND, PRIOR, TRUTH, WARN = (
    "#101001",
    "#101002",
    "#101003",
    "#101004",
    "#101005",
    "#101006",
    "#101007",
    "#101008",
)
SERIES = tuple(f"#1020{i:02d}" for i in range(8))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    ACCENT: "--accent",
    BAND: "--band",
    PRIOR: "--prior",
    TRUTH: "--truth",
    WARN: "--warn",
    **{color: f"--s{i}" for i, color in enumerate(SERIES)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sysid",
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.labelsize": 11.5,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.formatter.useoffset": False,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify": True,
}
SIZE_PER_INCH = 72
"""Matplotlib writes SVG in points; one point becomes one unit of the drawing."""


def styled() -> AbstractContextManager[None]:
    """Return a context in which figures are made and drawn; it leaves matplotlib's global settings alone."""
    return rc_context(_STYLE)


def make_axes(
    shape: tuple[int, int],
    size: tuple[float, float],
    gap: tuple[float, float] = (66.0, 34.0),
    top: float = 50.0,
    **options: Any,
) -> tuple[Figure, NDArray]:
    """Make a figure with a grid of axes, (rows, columns), and room for a legend on top.

    Margins are fixed instead of fitted to the labels: fitting draws every figure several times over.

    Args:
        shape: Rows and columns of axes.
        size: Width and height of the figure [page units].
        gap: Space between neighbours, across and down.
        top: Space above, for legend and title.
        options: For ``Figure.subplots``.
    """
    (rows, columns), (width, height) = shape, size
    figure = Figure(figsize=(width / SIZE_PER_INCH, height / SIZE_PER_INCH))
    left, right, bottom = 62.0, 14.0, 44.0
    cell = ((width - left - right + gap[0]) / columns - gap[0], (height - top - bottom + gap[1]) / rows - gap[1])
    figure.subplots_adjust(
        left / width, bottom / height, 1.0 - right / width, 1.0 - top / height, gap[0] / cell[0], gap[1] / cell[1]
    )
    axes: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def add_legend(figure: Figure, columns: int, handles: Sequence[Artist] | None = None) -> None:
    """Add a legend in the top margin; without handles of everything that has a label."""
    options = {} if handles is None else {"handles": handles}
    width = figure.get_figwidth() * SIZE_PER_INCH
    anchor = (54.0 / width, 1.0)
    figure.legend(loc="upper left", bbox_to_anchor=anchor, borderaxespad=0.1, ncols=columns, **options)


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an SVG element for an HTML page.

    Args:
        figure: The figure.
        name: A word that is unique on the page; all ids start with it.
        description: What the figure shows, for people who cannot see it.
    """
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: (?:(\w+) )?([\d.]+)px [^;\"]*", r"font-size: \2px", text)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    # a hundredth of a unit is finer than any screen; only inside tags: labels keep their digits
    text = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag.group()), text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label="{description}" class="figure"', 1)


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


def label_log_axis(axes: Axes) -> None:
    """Make the y axis logarithmic with plain numbers; call it when the limits are settled."""
    axes.set_yscale("log")
    lower, upper = axes.get_ylim()
    is_short = lower > 0.0 and upper / lower < 300.0
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
