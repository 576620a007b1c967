"""The structural answer for programs: base parameters with their coefficients, classes of all parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.mechanism import Comparison
from sysid_ros.core.identifiability.report import describe_data, structural_text
from sysid_ros.core.identifiability.structure import Structure, analyze_structure
from sysid_ros.core.identifiability.wording import Symbol, describe_combination, explain, symbol_table


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
    if not np.any(tree.gravity):
        rows = [(b.velocity_dimension, b.coefficient_dimension) for b in bodies]
        return [
            ("dim V", tuple(str(v) for v, _ in rows)),
            ("dim K", tuple(str(k) for _, k in rows)),
            ("dim T", tuple(str(b.transfer_dimension) for b in bodies)),
        ]
    without = analyze_structure(tree.with_gravity(np.zeros(3)), structure.settings).bodies
    pairs = list(zip(without, bodies, strict=True))
    return [
        ("dim V", tuple(f"{a.velocity_dimension} ({b.velocity_dimension})" for a, b in pairs)),
        ("dim K", tuple(f"{a.coefficient_dimension} ({b.coefficient_dimension})" for a, b in pairs)),
        ("dim T", tuple(str(b.transfer_dimension) for b in bodies)),
    ]


def number(value: float) -> str:
    """Return a number for a table."""
    return f"{value:.3g}".replace("-", "−") if np.isfinite(value) else "unbounded"


_LEGEND = (Symbol.IDENTIFIABLE, Symbol.CHOSEN, Symbol.COMBINED, Symbol.UNIDENTIFIABLE)


def identifiability_markdown(result: IdentifiabilityResult) -> str:
    """Answer, tables of the paper, base parameters, and what data know."""
    structure = result.structure
    lines = [f"# Identifiability of {structure.mechanism.name or 'robot'}", "", structural_text(result.comparison), ""]
    if result.analysis is not None:
        lines += ["## This data", "", describe_data(result.analysis, result.advice), ""]
        lines += [result.reason, ""] if result.reason else []
    lines += ["## What can be known", ""]
    table = [(name, tuple(s.value for s in row)) for name, row in symbol_table(structure)] + dimensions(structure)
    lines += _markdown_table(["", *(body.name for body in structure.bodies)], [[name, *row] for name, row in table])
    lines += ["", "; ".join(f"{s.value} {s.meaning}" for s in _LEGEND) + ".", "", "## Base parameters", ""]
    rows = [[str(k + 1), describe_combination(structure, k), structure.base_units[k]] for k in range(structure.count)]
    lines += _markdown_table(["", "combination", "unit"], rows)
    if result.analysis is not None:
        found = result.analysis
        rows = [
            [name, structure.base_units[k], *(number(v[k]) for v in (found.prior_deviations, found.deviations))]
            for k, name in enumerate(structure.base_names)
        ]
        lines += ["", "## Expected standard deviations", ""]
        lines += _markdown_table(["base parameter", "unit", "before", "data alone"], rows)
    return "\n".join(lines) + "\n"


def _markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
