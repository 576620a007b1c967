"""What an identifiability report is about, and the numbers its page and its text share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.snapping import Comparison
from sysid_ros.core.identifiability.structure import Structure, analyze_structure


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
    source: str = ""
    reason: str = ""

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
    """A number for a table."""
    return f"{value:.3g}".replace("-", "−") if np.isfinite(value) else "unbounded"
