"""What can be known of a robot: as YAML for programs, as Markdown, and as one self-contained page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DETERMINED, DataAnalysis
from sysid_ros.core.identifiability.mechanism import Comparison
from sysid_ros.core.identifiability.report import describe_data, describe_direction, structural_text, weakness
from sysid_ros.core.identifiability.structure import Structure, analyze_structure
from sysid_ros.core.identifiability.wording import (
    Symbol,
    describe_combination,
    describe_motion,
    explain,
    summarize,
    symbol_table,
)
from sysid_ros.reports import plots
from sysid_ros.reports.plots import Plot


def identifiability_yaml(comparison: Comparison) -> str:
    """YAML text with every base parameter as coefficients of the unknown parameters [SI]."""
    structure = comparison.snapped
    base = [
        {
            "name": structure.base_names[k],
            "unit": structure.base_units[k],
            "coefficients": {structure.names[j]: float(structure.matrix[k, j]) for j in np.flatnonzero(row)},
        }
        for k, row in enumerate(structure.matrix)
    ]
    parameters = {
        name: {"unit": structure.units[k], "class": structure.classes[k].name.lower(), "why": explain(structure, k)}
        for k, name in enumerate(structure.names)
    }
    document: dict[str, Any] = {
        "robot": structure.mechanism.name,
        "measured": structure.settings.measured,
        "motion": structure.settings.motion,
        "gravity": [float(x) for x in structure.mechanism.gravity],
        "number_of_base_parameters": structure.count,
        "number_with_geometry_as_written": comparison.raw.count,
        "base_parameters": base,
        "parameters": parameters,
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


@dataclass(frozen=True)
class IdentifiabilityResult:
    """What a report is about.

    Attributes:
        comparison: The structural answer, as given and with exact geometry.
        analysis: What data know, if there are data.
        advice: A motion that would help.
        source: Where robot and data come from, in words.
        reason: Why there are no guaranteed bounds although they were asked for; empty otherwise.
    """

    comparison: Comparison
    analysis: DataAnalysis | None = None
    advice: Advice | None = None
    source: str | None = None
    reason: str | None = None

    @property
    def structure(self) -> Structure:
        """The structural answer the report shows: with exact geometry."""
        return self.comparison.snapped


def dimensions(structure: Structure) -> list[tuple[str, tuple[str, ...]]]:
    """Rows of the paper's tables below the symbols: dim V, K and T of each body, with gravity in parentheses.

    Source: RPNA tables 2, 4, 5.
    """
    tree, bodies = structure.mechanism, structure.bodies
    without = bodies
    if np.any(tree.gravity):
        without = analyze_structure(tree.with_gravity(np.zeros(3)), structure.settings).bodies

    def row(name: str) -> tuple[str, ...]:
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(without, bodies, strict=True)]
        return tuple(f"{a} ({b})" if without is not bodies else str(b) for a, b in pairs)

    transfers = tuple(str(body.transfer_dimension) for body in bodies)
    return [("dim V", row("velocity_dimension")), ("dim K", row("coefficient_dimension")), ("dim T", transfers)]


def identifiability_markdown(result: IdentifiabilityResult) -> str:
    """Answer, tables of the paper, base parameters, and what data know."""
    return _render("identifiability.md", result)


_WEAK_DIRECTIONS = 5
_COLORS = {Symbol.IDENTIFIABLE: "y0", Symbol.CHOSEN: "y1", Symbol.COMBINED: "y2", Symbol.UNIDENTIFIABLE: "y3"}


def identifiability_html(result: IdentifiabilityResult) -> str:
    """Return the page as one text; it loads nothing from anywhere."""
    structure, analysis = result.structure, result.analysis
    texts = [explain(structure, k) for k in range(len(structure.names))]
    of_data: dict[str, Any] = {}
    if analysis is not None:
        weak = range(structure.count)[: -_WEAK_DIRECTIONS - 1 : -1]
        directions = [(analysis.singular_values[k], describe_direction(analysis, k)) for k in weak]
        of_data = {"weak": directions, "spectrum": _spectrum(analysis)}
    return _render(
        "identifiability.html",
        result,
        source=result.source,
        lead=summarize(structure),
        weakness=weakness(structure),
        classes=Counter(symbol for _, row in symbol_table(structure) for symbol in row),
        explanations=[
            (body.name, [text for text, owner in zip(texts, structure.body_of, strict=True) if owner == index])
            for index, body in enumerate(structure.bodies)
        ],
        bodies=[
            (body, describe_motion(structure, body), structure.count_of_body(index))
            for index, body in enumerate(structure.bodies)
        ],
        rotors=[body.name for body in structure.tree.bodies if body.rotor is not None],
        **of_data,
    )


def _render(template: str, result: IdentifiabilityResult, **values: Any) -> str:
    from sysid_ros.reports.pages import render  # templates take a while to load

    structure, analysis = result.structure, result.analysis
    return render(
        template,
        result=result,
        name=structure.mechanism.name or "robot",
        text=structural_text(result.comparison),
        structure=structure,
        analysis=analysis,
        data_text=None if analysis is None else describe_data(analysis, result.advice),
        colors=_COLORS,
        symbols=symbol_table(structure),
        dimensions=dimensions(structure),
        combinations=[(describe_combination(structure, k), structure.base_units[k]) for k in range(structure.count)],
        **values,
    )


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
