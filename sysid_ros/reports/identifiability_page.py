"""``identifiability.html``: one self-contained page, the answer first, then the tables of the paper."""

from __future__ import annotations

from html import escape

import numpy as np

from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.report import describe_data, describe_direction, weakness
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import (
    Symbol,
    describe_combination,
    describe_motion,
    explain,
    summarize,
    symbol_table,
)
from sysid_ros.reports import svg
from sysid_ros.reports.figures import WIDTH
from sysid_ros.reports.identifiability_text import IdentifiabilityResult, dimensions, number
from sysid_ros.reports.style import STYLE

_WEAK_DIRECTIONS = 5
_STYLE = """
table.symbols td, table.symbols th { text-align: center; padding: 3px 8px; }
table.symbols td:first-child, table.symbols th:first-child { text-align: left; }
table.symbols tr.sum td { border-top: 2px solid var(--line); }
.y0 { color: var(--good); } .y1 { color: var(--accent); } .y2 { color: var(--muted); } .y3 { color: var(--bad); }
details { margin: 6px 0; } summary { cursor: pointer; }
"""
_COLORS = {Symbol.IDENTIFIABLE: "y0", Symbol.CHOSEN: "y1", Symbol.COMBINED: "y2", Symbol.UNIDENTIFIABLE: "y3"}


def identifiability_html(result: IdentifiabilityResult) -> str:
    """The page as one text; it loads nothing from anywhere."""
    structure = result.structure
    name = escape(structure.mechanism.name or "robot")
    parts = [
        _header(result, name),
        _states(result),
        _tiles(result),
        _symbols(structure),
        _data(result),
        _base(structure),
        _parameters(structure),
        _bodies(structure),
        _how(structure),
    ]
    body = "\n".join(part for part in parts if part).replace("^2", "²")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Identifiability of {name}</title>\n<style>{STYLE}{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def _header(result: IdentifiabilityResult, name: str) -> str:
    structure = result.structure
    kicker = f'<p class="kicker">Identifiability report · {name} · {escape(result.source)}</p>'
    lead = escape(summarize(structure))
    return f'<header>{kicker}<h1>{structure.count} base parameters</h1><p class="lead">{lead}</p></header>'


def _states(result: IdentifiabilityResult) -> str:
    comparison = result.comparison
    boxes = []
    if comparison.is_near_dependency:
        boxes.append(("warn", "Rounded geometry", comparison.sentence()))
    if weakness(comparison.snapped):
        boxes.append(("warn", "Weak", weakness(comparison.snapped)))
    boxes += [("warn", "Note", f"{note}.") for note in result.structure.mechanism.notes]
    if result.analysis is not None:
        is_complete = result.analysis.determined == result.structure.count
        text = describe_data(result.analysis, result.advice)
        boxes.append(("good" if is_complete else "warn", "This data", text))
    if result.reason:
        boxes.append(("warn", "Bounds", result.reason))
    return "".join(
        f'<div class="state {kind}"><p><b>{escape(head)}.</b> {escape(text)}</p></div>' for kind, head, text in boxes
    )


def _tiles(result: IdentifiabilityResult) -> str:
    structure = result.structure
    flat = [symbol for _, row in symbol_table(structure) for symbol in row]
    tiles = [
        ("Base parameters", str(structure.count), f"of {len(structure.names)} unknown parameters"),
        ("Known on their own", str(flat.count(Symbol.IDENTIFIABLE)), "parameters"),
        ("Only in combination", str(flat.count(Symbol.CHOSEN) + flat.count(Symbol.COMBINED)), "parameters"),
        ("Never", str(flat.count(Symbol.UNIDENTIFIABLE)), "parameters"),
    ]
    if result.comparison.is_near_dependency:
        tiles.append(("Geometry as written", str(result.comparison.raw.count), "base parameters, not all of them real"))
    if result.analysis is not None:
        values = (f"{result.analysis.determined} of {structure.count}", "combinations determined")
        tiles.append(("This data", *values))
    cells = "".join(
        f'<div class="tile"><div class="name">{escape(a)}</div><div class="value">{escape(b)}</div>'
        f'<div class="note">{escape(c)}</div></div>'
        for a, b, c in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _symbols(structure: Structure) -> str:
    heads = "".join(f"<th>{escape(body.name)}<br>{escape(body.kind)}</th>" for body in structure.bodies)
    rows = []
    for name, symbols in symbol_table(structure):
        cells = "".join(f'<td class="{_COLORS.get(s, "")}">{s.value}</td>' for s in symbols)
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    for index, (name, values) in enumerate(dimensions(structure)):
        kind = ' class="sum"' if index == 0 else ""
        rows.append(f"<tr{kind}><td>{name}</td>{''.join(f'<td>{value}</td>' for value in values)}</tr>")
    legend = " · ".join(f'<span class="{_COLORS[s]}">{s.value}</span> {s.meaning}' for s in _COLORS)
    text = (
        "Every column is a body with the joint that moves it, every row a parameter about the frame of that joint. "
        "The base parameters are the stars and full circles. dim V counts the independent velocities of a body, dim K "
        "the coefficients of its parameters in what is measured, dim T the changes that its parent can take over "
        "unseen; with gravity in parentheses."
    )
    return (
        f"<section><h2>What can be known</h2><p>{text}</p><p>{legend}</p><div class='scroll'>"
        f"<table class='symbols'><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        "</section>"
    )


def _data(result: IdentifiabilityResult) -> str:
    analysis = result.analysis
    if analysis is None:
        return ""
    structure = analysis.structure
    has_bounds = analysis.lower is not None
    head = (
        "<th>base parameter</th><th>unit</th><th>before (std.)</th><th>data alone (std.)</th><th>together (std.)</th>"
    )
    head += "<th>guaranteed bounds</th>" if has_bounds else ""
    rows = []
    for k, name in enumerate(structure.base_names):
        cells = [escape(structure.base_units[k]), number(analysis.prior_deviations[k])]
        kind = "yes" if analysis.is_determined[k] else "no"
        cells.append(f"<span class='{kind}'>{number(analysis.deviations[k])}</span>")
        cells.append(number(analysis.deviations_with_prior[k]))
        if has_bounds:
            cells.append(f"[{number(analysis.lower[k])}, {number(analysis.upper[k])}]")
        rows.append(f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    weak = range(structure.count - 1, max(structure.count - 1 - _WEAK_DIRECTIONS, -1), -1)
    items = "".join(
        f"<li>{number(analysis.singular_values[k])} times better than before: "
        f"{escape(describe_direction(analysis, k))}</li>"
        for k in weak
    )
    text = (
        "How many times better than before the data know each of the independent combinations. Below 1 (the line) "
        "they say less than was known before: that combination has not been excited."
    )
    return (
        f"<section><h2>What this data knows</h2><p>{text}</p>{_spectrum(analysis)}"
        f"<h3>Least known combinations</h3><p>Changes of one standard deviation of what was known before, which the "
        f"data can hardly tell from nothing:</p><ul>{items}</ul>"
        f"<h3>Expected standard deviations</h3><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
        "</table></section>"
    )


def _spectrum(analysis: DataAnalysis) -> str:
    values = analysis.singular_values
    numbers = np.arange(1, values.size + 1)
    shown = values > 1e-6 * max(float(values.max(initial=0.0)), 1e-300)
    if not shown.any():
        return ""
    with svg.styled():
        figure, grid = svg.make_axes(1, 1, WIDTH, 230, top=26.0)
        axes = grid[0, 0]
        floor = min(float(values[shown].min()) / 3.0, 0.3)
        axes.vlines(numbers[shown], floor, values[shown], color=svg.ACCENT, linewidth=2.5)
        axes.plot(numbers[shown], values[shown], "o", color=svg.ACCENT, markersize=4)
        axes.plot(numbers[~shown], np.full(np.count_nonzero(~shown), floor), "x", color=svg.TRUTH, clip_on=False)
        axes.axhline(analysis.limit, color=svg.WARN, linewidth=1.0, dashes=(4, 2))
        axes.set_yscale("log")
        axes.set_ylim(bottom=floor)
        svg.label_log_axis(axes)
        axes.set_xlabel("combination")
        axes.set_title("times better known than before [-]; crosses: not at all")
        axes.grid(axis="x", visible=False)
        return svg.inline_svg(figure, "spectrum", "How many times better the data know each combination than before")


def _base(structure: Structure) -> str:
    rows = "".join(
        f"<tr><td>{k + 1}</td><td class='text wide'>{escape(describe_combination(structure, k))}</td>"
        f"<td>{escape(structure.base_units[k])}</td></tr>"
        for k in range(structure.count)
    )
    text = (
        "A minimal set that explains everything measured. Each is named after the first parameter in it; setting the "
        "parameters without a name here to zero and those with one to these values gives the same torques."
    )
    return (
        f"<section><h2>Base parameters</h2><p>{text}</p><div class='scroll'><table><thead><tr><th></th>"
        f"<th class='text'>combination</th><th>unit</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _parameters(structure: Structure) -> str:
    parts = []
    for index, body in enumerate(structure.bodies):
        items = "".join(
            f"<li>{escape(explain(structure, k))}</li>" for k, owner in enumerate(structure.body_of) if owner == index
        )
        if items:
            parts.append(f"<details><summary>{escape(body.name)}</summary><ul>{items}</ul></details>")
    return f"<section><h2>Every parameter in words</h2>{''.join(parts)}</section>"


def _bodies(structure: Structure) -> str:
    rows = "".join(
        f"<tr><td>{escape(body.name)}</td><td class='text'>{escape(body.kind)}</td>"
        f"<td class='text wide'>{escape(', '.join(body.links))}</td>"
        f"<td class='text wide'>{escape(describe_motion(structure, body))}</td>"
        f"<td>{structure.count_of_body(index)}</td></tr>"
        for index, body in enumerate(structure.bodies)
    )
    head = "<th>joint</th><th class='text'>kind</th><th class='text'>links</th><th class='text'>attainable motion</th>"
    head += "<th>base parameters</th>"
    return f"<section><h2>Bodies</h2><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></section>"


def _how(structure: Structure) -> str:
    settings = structure.settings
    rotors = [b.name for b in structure.tree.bodies if b.rotor is not None]
    entries = {
        "measured": settings.measured.replace("_", " "),
        "motion": settings.motion,
        "gravity [m/s²]": ", ".join(f"{x:.6g}" for x in structure.mechanism.gravity),
        "joint parameters": ", ".join(settings.joint_parameters) or "none",
        "rotors": ", ".join(rotors) or "none",
        "known bodies": ", ".join(settings.known) or "none",
        "tolerance [-]": f"{settings.tolerance:g}",
    }
    rows = "".join(f"<tr><td>{escape(k)}</td><td class='wide'>{escape(v)}</td></tr>" for k, v in entries.items())
    return f"<section><h2>How it was made</h2><table><tbody>{rows}</tbody></table></section>"
