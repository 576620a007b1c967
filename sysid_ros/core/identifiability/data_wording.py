"""What the data know, in words."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.identifiability.advice import Advice
from sysid_ros.core.identifiability.data import DataAnalysis
from sysid_ros.core.identifiability.wording import MINUS

_LISTED = 6
"""Most parameters or terms one sentence lists."""
_SHARE = 0.02
"""Base parameters with less than this share of a combination are not named."""


def describe_direction(analysis: DataAnalysis, index: int) -> str:
    """The base parameters that change along a combination, with by how much over one prior deviation.

    Args:
        analysis: What the data know.
        index: Index of the combination, 0 the one known best.

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
    """The whole in a few sentences.

    Args:
        analysis: What the data know.
        advice: A motion that would help.

    Returns:
        How many combinations are determined, which base parameters are not, what would help, and what is guaranteed.
    """
    return " ".join(part for part in (_describe_determined(analysis, advice), describe_bounds(analysis)) if part)


def describe_bounds(analysis: DataAnalysis) -> str:
    """How narrow guaranteed bounds are and why they are wider than expected deviations; empty without bounds."""
    if analysis.lower is None or analysis.upper is None or not analysis.structure.count:
        return ""
    half = np.maximum(0.5 * (analysis.upper - analysis.lower), 1e-12 * analysis.prior_deviations)
    gain, names = analysis.prior_deviations / half, analysis.structure.base_names
    worst, best = int(np.argmin(gain)), int(np.argmax(gain))
    return (
        f"The guaranteed bounds are between {gain[worst]:.3g} ({names[worst]}) and {gain[best]:.3g} ({names[best]}) "
        "times narrower than what was unknown before; unlike the expected deviations, they allow for errors that all "
        "data share, such as those of the arm's own parameters, which do not average out."
    )


def _describe_determined(analysis: DataAnalysis, advice: Advice | None) -> str:
    total, found = analysis.structure.count, analysis.determined
    if not total:
        return "There is nothing that data could tell: no unknown parameter is identifiable."
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
    text += f"The weakest: {weakest}{together} changes next to nothing measured."
    if advice is not None:
        text += f" {advice.text[:1].upper()}{advice.text[1:]}."
    return text


def _least_known(analysis: DataAnalysis) -> list[int]:
    """Base parameters the data alone know less well than the prior did, the least known first."""
    with np.errstate(invalid="ignore"):
        ratio = analysis.deviations / analysis.prior_deviations
    return [int(k) for k in np.argsort(-ratio, kind="stable") if not analysis.is_determined[k]]


def _signed(value: float) -> str:
    return f"{MINUS if value < 0 else ''}{abs(value):.3g}"
