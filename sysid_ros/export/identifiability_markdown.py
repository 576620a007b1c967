"""The identifiability report as Markdown text."""

from __future__ import annotations

from sysid_ros.core.identifiability.data_wording import describe_data
from sysid_ros.core.identifiability.report import structural_text
from sysid_ros.core.identifiability.wording import Symbol, describe_combination, symbol_table
from sysid_ros.export.identifiability_result import IdentifiabilityResult, dimensions, number

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
