"""What pages are made of: templates, whose values are escaped, and figures as inline SVG.

Every plot is an SVG of its own that takes its colours from the page, so that plots fit a light and a dark theme and
stand in as many columns as there is room for. A script of the page reads out values where the pointer is. It is ours
and small: what libraries for plots put into a page is megabytes for each report, and draws nothing on paper or where
scripts are off. The policy of the page allows this one script and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray


def render(template: str, **values: Any) -> str:
    """Fill in a template of ``reports/templates``.

    Args:
        template: Name of its file.
        values: What it asks for, by name.
    """
    return _ENVIRONMENT.get_template(template).render(script=_SCRIPT, script_hash=_SCRIPT_HASH, **values)


_SCRIPT = "\n" + files("sysid_ros.reports").joinpath("templates/page.js").read_text(encoding="utf-8")
_SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
"""Script of every page, and by what its policy knows it."""


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


SMALL, WIDE = (340.0, 176.0), (430.0, 190.0)
"""Width and height of a plot [page units]: about those of a phone, so that letters keep their size there, and half of
a page."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 24.0, 24.0


def make_plot(size: tuple[float, float] = SMALL, left: float = _LEFT, bottom: float = _BOTTOM) -> Axes:
    """Make the axes of one plot, in a figure of their own: pages arrange plots by the width they have.

    Margins are fixed instead of fitted to the labels: fitting draws every figure several times over.

    Args:
        size: Width and height [page units].
        left: Space for labels on the left [page units].
        bottom: Space for labels below [page units].
    """
    width, height = size
    figure = Figure(figsize=(width / SIZE_PER_INCH, height / SIZE_PER_INCH))
    box = (left / width, bottom / height, 1.0 - (left + _RIGHT) / width, 1.0 - (_TOP + bottom) / height)
    return figure.add_axes(box)


def show_seconds(axes: Axes) -> None:
    """Label the x axis as time: numbers with their unit need no line of their own."""
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))


def inline_plots(name: str, description: str, plots: Sequence[Axes], handles: Sequence[Artist] = ()) -> str:
    """Return plots as an element of an HTML page, which stands in as many columns as there is room for.

    A line with a label is read out where the pointer is, by the script of the page; without scripts the plots stay.

    Args:
        name: A word that is unique on the page; all ids start with it.
        description: What the plots show, for people who cannot see them.
        plots: Axes of :func:`make_plot`, all of one size.
        handles: What the legend explains; none if empty.
    """
    width = _figure_of(plots[0]).get_figwidth() * SIZE_PER_INCH
    items = "".join(f"<li>{_swatch(handle)}{escape(str(handle.get_label()))}</li>" for handle in handles)
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    drawings = "".join(_inline_svg(axes, f"{name}{k}") for k, axes in enumerate(plots))
    group = f'role="group" aria-label="{escape(description)}" style="--cell:{0.88 * width:.0f}px"'
    return f'<div class="plots" {group}>{legend}<div class="grid">{drawings}</div></div>'


def _inline_svg(axes: Axes, name: str) -> str:
    tracked = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    for k, line in enumerate(tracked):
        line.set_gid(f"line{k}")
    figure = _figure_of(axes)
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
    title = escape(axes.get_title(loc="left"))
    return text.replace("<svg", f'<svg role="img" aria-label="{title}" class="plot" {_hover(axes, name, tracked)}', 1)


def _hover(axes: Axes, name: str, lines: Sequence[Line2D]) -> str:
    """Return what the script of the page needs to turn places of a drawing into numbers."""
    if not lines:
        return ""
    box = axes.get_position()
    width, height = _figure_of(axes).get_size_inches() * SIZE_PER_INCH
    data = {
        "x": [box.x0 * width, box.x1 * width, *axes.get_xlim()],
        "y": [(1.0 - box.y0) * height, (1.0 - box.y1) * height, *axes.get_ylim()],
        "log": axes.get_yscale() == "log",
        "lines": [[f"{name}-line{k}", str(line.get_label())] for k, line in enumerate(lines)],
    }
    rounded = json.dumps(data, default=float)
    return f'data-plot="{escape(rounded)}"'


def _figure_of(axes: Axes) -> Figure:
    figure = axes.figure
    assert isinstance(figure, Figure)  # of make_plot, which makes no figures inside figures
    return figure


def _swatch(handle: Artist) -> str:
    """Draw what the legend shows of an artist, 22 x 12."""
    if isinstance(handle, Patch):
        alpha = 1.0 if handle.get_alpha() is None else handle.get_alpha()
        parts = f'<rect y="1" width="22" height="10" fill="{_paint(handle.get_facecolor())}" fill-opacity="{alpha:g}"/>'
    elif isinstance(handle, Line2D):
        paint, parts = _paint(handle.get_color()), ""
        if handle.get_linestyle() not in ("None", "none", ""):
            dashes = ' stroke-dasharray="4 2.5"' if handle.is_dashed() else ""
            wide = min(handle.get_linewidth() + 0.6, 4.0)
            parts = f'<path d="M0 6h22" stroke="{paint}" stroke-width="{wide:g}"{dashes}/>'
        if handle.get_marker() in ("s", "_"):
            parts += f'<rect x="8" y="3" width="6" height="6" fill="{paint}"/>'
        elif handle.get_marker() not in ("None", "none", "", None):
            parts += f'<circle cx="11" cy="6" r="3" fill="{paint}"/>'
    else:
        raise TypeError(f"a legend cannot show {type(handle).__name__}")
    for color, variable in _VARIABLES.items():
        parts = parts.replace(color, f"var({variable})")
    return f'<svg class="swatch" viewBox="0 0 22 12">{parts}</svg>'


def _paint(color: Any) -> str:
    return str(to_hex(color))


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
    ratio = upper / lower if lower > 0.0 else np.inf
    logarithmic = LogLocator(subs=(1.0, 2.0, 5.0) if ratio < 300.0 else (1.0,))
    axes.yaxis.set_major_locator(MaxNLocator(4) if ratio < 8.0 else logarithmic)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
