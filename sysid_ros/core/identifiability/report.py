"""The answer as it is shown, written and sent: flat lists of texts and numbers.

The fields of :class:`Report` are those of the message ``IdentifiabilityReport``, one to one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.mechanism import Comparison
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import MINUS, describe_combination, explain, summarize

Array = NDArray[np.float64]

_LISTED = 6
"""Most parameters or terms one sentence lists."""
_SHARE = 0.02
"""Base parameters with less than this share of a combination are not named."""


def describe_direction(analysis: DataAnalysis, index: int) -> str:
    """List the base parameters that change along a combination, with their change over one prior deviation.

    The index 0 is the best determined combination.

    Returns:
        Such as ``lbr_A6.m by 0.21 kg, lbr_A7.mcx by −0.03 kg m``, most important first.
    """
    shares, change, structure = analysis.shares[index], analysis.directions[index], analysis.structure
    order = [k for k in np.argsort(shares)[::-1] if shares[k] >= _SHARE][:_LISTED]
    sign = np.sign(change[order[0]]) if order else 1.0
    return ", ".join(
        f"{structure.base_names[k]} by {_signed(float(sign * change[k]))} {structure.base_units[k]}" for k in order
    )


def describe_data(analysis: DataAnalysis, advice: Advice | None = None) -> str:
    """Summarise the answer in a few sentences.

    Returns:
        The number of determined combinations, the undetermined base parameters, the helpful motion, the guarantee.
    """
    return " ".join(part for part in (_describe_determined(analysis, advice), describe_bounds(analysis)) if part)


def describe_bounds(analysis: DataAnalysis) -> str:
    """Describe the guaranteed bounds and why they are wider than expected deviations; empty without bounds."""
    if analysis.lower is None or analysis.upper is None or not analysis.structure.count:
        return ""
    half = np.maximum(0.5 * (analysis.upper - analysis.lower), 1e-12 * analysis.prior_deviations)
    gain, names = analysis.prior_deviations / half, analysis.structure.base_names
    worst, best = int(np.argmin(gain)), int(np.argmax(gain))
    return (
        f"The guaranteed bounds are between {gain[worst]:.3g} ({names[worst]}) and {gain[best]:.3g} ({names[best]}) "
        "times narrower than the prior's; unlike the expected deviations, they allow for errors that all "
        "data share, such as errors of the arm's own parameters, which do not average out."
    )


def _describe_determined(analysis: DataAnalysis, advice: Advice | None) -> str:
    total, found = analysis.structure.count, analysis.determined
    if not total:
        return "Data cannot determine any unknown parameter: none is identifiable."
    if found == total:
        return (
            f"The data determine all {total} combinations that can be known; the weakest is known "
            f"{analysis.singular_values[-1]:.3g} times better than before."
        )
    missing = total - found
    names = [analysis.structure.base_names[k] for k in _least_known(analysis)]
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    text = f"{missing} of {total} combinations that can be known {'has' if missing == 1 else 'have'} not been excited "
    text += "enough"
    text += f"; base parameters affected: {listed}. " if names else ". "
    weakest = describe_direction(analysis, total - 1)
    together = ", all at once," if "," in weakest else ""
    text += f"The weakest: {weakest}{together} hardly changes the measurements."
    if advice is not None:
        text += f" {advice.text[:1].upper()}{advice.text[1:]}."
    return text


def _least_known(analysis: DataAnalysis) -> list[int]:
    """List the base parameters that the data alone determine less well than the prior, the weakest first."""
    with np.errstate(invalid="ignore"):
        ratio = analysis.deviations / analysis.prior_deviations
    return [int(k) for k in np.argsort(-ratio, kind="stable") if not analysis.is_determined[k]]


def _signed(value: float) -> str:
    return f"{MINUS if value < 0 else ''}{abs(value):.3g}"


_none = partial(np.zeros, 0)
WEAK = 1e-3
"""Below this, something is identifiable only because of a small offset or angle, and the report says so."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Identifiability of P parameters, by the structure of the robot or from data.

    Attributes:
        method: ``structural`` or ``data``.
        names: The unknown parameters, P.
        units: Unit of each.
        classes: Identifiability of each: 0 on its own, 1 in combination, 2 not at all.
        combinations: One sentence on each: its combination, or why it is not identifiable.
        base_parameters: The nb identifiable combinations, written out.
        base_names: The parameter each of them is named after.
        base_units: Unit of each of them.
        determined: Number of independent combinations the data determine better than the prior; 0 if structural.
        singular_values: Ratio of prior to data deviation of independent combinations, falling, (nb,) [-]; empty for a
            structural report.
        condition_number: Of the regressor of the base parameters, in units of the prior [-]; NaN if structural.
        prior_deviations: Standard deviations of the base parameters before the data, (nb,); empty if structural, as the
            next two.
        deviations: Expected from the data alone, (nb,); inf without information.
        deviations_with_prior: Expected from data and prior together, (nb,).
        lower: Guaranteed lower bounds of the base parameters, (nb,); empty without bounds.
        upper: Guaranteed upper bounds, (nb,) or empty.
        text: The whole in words.
    """

    method: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    classes: tuple[int, ...]
    combinations: tuple[str, ...]
    base_parameters: tuple[str, ...]
    base_names: tuple[str, ...]
    base_units: tuple[str, ...]
    determined: int = 0
    singular_values: Array = field(default_factory=_none)
    condition_number: float = float("nan")
    prior_deviations: Array = field(default_factory=_none)
    deviations: Array = field(default_factory=_none)
    deviations_with_prior: Array = field(default_factory=_none)
    lower: Array = field(default_factory=_none)
    upper: Array = field(default_factory=_none)
    text: str

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def report_structure(comparison: Comparison) -> Report:
    """Build the structural report, for exact geometry where the given one is rounded."""
    return _report("structural", comparison.snapped, structural_text(comparison))


def report_data(analysis: DataAnalysis, advice: Advice | None = None) -> Report:
    """Build the report on data, with advice where there is some."""
    return replace(
        _report("data", analysis.structure, describe_data(analysis, advice)),
        determined=analysis.determined,
        singular_values=np.array(analysis.singular_values),
        condition_number=analysis.condition_number,
        prior_deviations=np.array(analysis.prior_deviations),
        deviations=np.array(analysis.deviations),
        deviations_with_prior=np.array(analysis.deviations_with_prior),
        lower=_none() if analysis.lower is None else np.array(analysis.lower),
        upper=_none() if analysis.upper is None else np.array(analysis.upper),
    )


def report_bounds(
    structure: Structure, lower: Array, upper: Array, prior: Box, condition_number: float, text: str
) -> Report:
    """Build the report on guaranteed bounds of base parameters, without standard deviations.

    Args:
        structure: The structural answer.
        lower: Lower bounds of the base parameters, (nb,).
        upper: Upper bounds, (nb,).
        prior: Their bounds before the data; narrower ones now count as determined.
        condition_number: Of the regressor of the base parameters [-].
        text: Description of the bounds.
    """
    is_narrower = np.asarray(upper) - np.asarray(lower) < 0.999 * prior.width  # less says no more than the prior
    return replace(
        _report("data", structure, text),
        determined=int(np.count_nonzero(is_narrower)),
        condition_number=condition_number,
        lower=np.array(lower),
        upper=np.array(upper),
    )


def structural_text(comparison: Comparison) -> str:
    """Write the structural answer in words, with the effect of rounding."""
    structure = comparison.snapped
    parts = [summarize(structure), comparison.sentence(), weakness(structure), *structure.mechanism.notes]
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)


def weakness(structure: Structure) -> str:
    """Write one sentence if something is identifiable only because of a small offset or angle; otherwise return ""."""
    if structure.weakest >= WEAK:
        return ""
    return (
        f"Some parameters are identifiable only because of a small offset or angle: their effect on measurements is "
        f"{structure.weakest:.1e} of the others'."
    )


def _report(method: str, structure: Structure, text: str) -> Report:
    """Build a report without data."""
    return Report(
        method=method,
        names=structure.names,
        units=structure.units,
        classes=tuple(found.value for found in structure.classes),
        combinations=tuple(explain(structure, k) for k in range(len(structure.names))),
        base_parameters=tuple(describe_combination(structure, k) for k in range(structure.count)),
        base_names=structure.base_names,
        base_units=structure.base_units,
        text=text,
    )
