"""The answer in the form in which it is shown, written and sent: flat lists of texts and numbers.

The fields of :class:`Report` are those of the message ``IdentifiabilityReport``, one to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.data_wording import describe_data
from sysid_ros.core.identifiability.snapping import Comparison
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import describe_combination, explain, summarize

Array = NDArray[np.float64]

WEAK = 1e-3
"""Below this, something is identifiable only because of a small offset or angle, and the report says so."""


@dataclass(frozen=True)
class Report:
    """Which of P parameters can be known, by the structure of the robot or from the data at hand.

    Attributes:
        method: ``structural`` or ``data``.
        names: The unknown parameters, P.
        units: Unit of each.
        classes: What can be known of each: 0 on its own, 1 in combination, 2 not at all.
        combinations: One sentence on each: the combination it is seen in, or why it cannot be known.
        base_parameters: The nb combinations that can be known, written out.
        singular_values: How many times better than the prior the data know independent combinations, falling, (nb,)
            [-]; empty for a structural report.
        condition_number: Of the regressor of the base parameters, in units of the prior [-]; NaN if structural.
        text: The whole in words.
    """

    method: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    classes: tuple[int, ...]
    combinations: tuple[str, ...]
    base_parameters: tuple[str, ...]
    singular_values: Array
    condition_number: float
    text: str


def report_structure(comparison: Comparison) -> Report:
    """The structural report, for exact geometry where the given one is rounded."""
    structure = comparison.snapped
    return _report("structural", structure, np.zeros(0), float("nan"), structural_text(comparison))


def report_data(analysis: DataAnalysis, advice: Advice | None = None) -> Report:
    """The report on data, with advice where there is some."""
    structure = analysis.structure
    text = describe_data(analysis, advice)
    return _report("data", structure, np.array(analysis.singular_values), analysis.condition_number, text)


def structural_text(comparison: Comparison) -> str:
    """The structural answer in words, with what rounding does to it."""
    structure = comparison.snapped
    parts = [summarize(structure), comparison.sentence(), weakness(structure), *structure.mechanism.notes]
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)


def weakness(structure: Structure) -> str:
    """One sentence if something is identifiable only because of a small offset or angle; otherwise empty."""
    if structure.weakest >= WEAK:
        return ""
    return (
        f"Some parameters are identifiable only because of a small offset or angle: their trace in what is measured is "
        f"{structure.weakest:.1e} of that of the others."
    )


def _report(method: str, structure: Structure, values: Array, condition: float, text: str) -> Report:
    values.setflags(write=False)
    return Report(
        method=method,
        names=structure.names,
        units=structure.units,
        classes=tuple(found.value for found in structure.classes),
        combinations=tuple(explain(structure, k) for k in range(len(structure.names))),
        base_parameters=tuple(describe_combination(structure, k) for k in range(structure.count)),
        singular_values=values,
        condition_number=condition,
        text=text,
    )
