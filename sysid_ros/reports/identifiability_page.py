"""``identifiability.html``: one self-contained page, the answer first, then the tables of the paper."""

from __future__ import annotations

from typing import Any

from sysid_ros.core.identifiability.data import DETERMINED, DataAnalysis
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
from sysid_ros.reports import plots
from sysid_ros.reports.identifiability_text import IdentifiabilityResult, dimensions, number
from sysid_ros.reports.pages import render
from sysid_ros.reports.plots import Plot

_WEAK_DIRECTIONS = 5
_COLORS = {Symbol.IDENTIFIABLE: "y0", Symbol.CHOSEN: "y1", Symbol.COMBINED: "y2", Symbol.UNIDENTIFIABLE: "y3"}


def identifiability_html(result: IdentifiabilityResult) -> str:
    """Return the page as one text; it loads nothing from anywhere."""
    structure, analysis = result.structure, result.analysis
    texts = [explain(structure, k) for k in range(len(structure.names))]
    of_data: dict[str, Any] = {} if analysis is None else _data(analysis)
    return render(
        "identifiability.html",
        name=structure.mechanism.name or "robot",
        source=result.source,
        structure=structure,
        lead=summarize(structure),
        states=_states(result),
        facts=_facts(result),
        colors=_COLORS,
        symbols=symbol_table(structure),
        dimensions=dimensions(structure),
        analysis=analysis,
        combinations=[(describe_combination(structure, k), structure.base_units[k]) for k in range(structure.count)],
        explanations=[
            (body.name, [text for text, owner in zip(texts, structure.body_of, strict=True) if owner == index])
            for index, body in enumerate(structure.bodies)
        ],
        bodies=[
            (body, describe_motion(structure, body), structure.count_of_body(index))
            for index, body in enumerate(structure.bodies)
        ],
        settings=_settings(structure),
        **of_data,
    )


def _states(result: IdentifiabilityResult) -> list[tuple[str, str, str]]:
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
    return boxes


def _facts(result: IdentifiabilityResult) -> list[tuple[str, str, str, str]]:
    structure = result.structure
    flat = [symbol for _, row in symbol_table(structure) for symbol in row]
    facts = [
        ("Base parameters", str(structure.count), "", f"of {len(structure.names)} unknown parameters"),
        ("Known on their own", str(flat.count(Symbol.IDENTIFIABLE)), "", "parameters"),
        ("Only in combination", str(flat.count(Symbol.CHOSEN) + flat.count(Symbol.COMBINED)), "", "parameters"),
        ("Never", str(flat.count(Symbol.UNIDENTIFIABLE)), "", "parameters"),
    ]
    if result.comparison.is_near_dependency:
        note = "base parameters, not all of them real"
        facts.append(("Geometry as written", str(result.comparison.raw.count), "", note))
    if result.analysis is not None:
        found = f"{result.analysis.determined} of {structure.count}"
        facts.append(("This data", found, "", "combinations determined"))
    return facts


def _data(analysis: DataAnalysis) -> dict[str, Any]:
    structure, lower, upper = analysis.structure, analysis.lower, analysis.upper
    rows = []
    for k, name in enumerate(structure.base_names):
        row = {
            "name": name,
            "unit": structure.base_units[k],
            "prior": number(analysis.prior_deviations[k]),
            "data": number(analysis.deviations[k]),
            "together": number(analysis.deviations_with_prior[k]),
            "is_determined": analysis.is_determined[k],
            "bounds": None if lower is None or upper is None else f"[{number(lower[k])}, {number(upper[k])}]",
        }
        rows.append(row)
    weak = range(structure.count - 1, max(structure.count - 1 - _WEAK_DIRECTIONS, -1), -1)
    return {
        "deviations": rows,
        "weak": [(number(analysis.singular_values[k]), describe_direction(analysis, k)) for k in weak],
        "spectrum": _spectrum(analysis),
    }


def _spectrum(analysis: DataAnalysis) -> str | None:
    values = analysis.singular_values
    shown = values > 1e-6 * max(float(values.max(initial=0.0)), 1e-300)
    if not shown.any():
        return None
    plot = Plot(
        "times better known than before [-]; crosses: not at all", (430.0, 220.0), x_label="combination", logs="y"
    )
    plot.y.start = 0.3
    plot.stems(values, shown)
    plot.level(DETERMINED, plots.WARN, 1.0, plots.DASHED)
    description = "How many times better the data know each combination than before"
    return plots.inline_plots("spectrum", description, [plot])


def _settings(structure: Structure) -> dict[str, str]:
    settings = structure.settings
    rotors = [b.name for b in structure.tree.bodies if b.rotor is not None]
    return {
        "measured": settings.measured.replace("_", " "),
        "motion": settings.motion,
        "gravity [m/s²]": ", ".join(f"{x:.6g}" for x in structure.mechanism.gravity),
        "joint parameters": ", ".join(settings.joint_parameters) or "none",
        "rotors": ", ".join(rotors) or "none",
        "known bodies": ", ".join(settings.known) or "none",
        "tolerance [-]": f"{settings.tolerance:g}",
    }
