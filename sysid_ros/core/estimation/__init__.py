"""Streaming estimation of a payload, any body or the whole arm, with guaranteed bounds.

The packages in the order of the data; docs/theory/bounds.md has the proofs:

1. :mod:`parameters`: settings, target and nuisance parameters, bounds, the estimate;
2. :mod:`windows`: samples, momentum windows, error budget, rows ``Y theta_e + B delta = u + e``;
3. :mod:`lp`: the rows as linear programs, and their interior-point solver;
4. :mod:`point`: the physically consistent point estimate;
5. :mod:`bounds`: guaranteed bounds, consistency, compaction;
6. :mod:`streaming` puts them together, on samples as they arrive or on a recording; :mod:`calibration` bounds an arm.

Names are imported when first used, because drivers need samples but none of the mathematics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sysid_ros.core.estimation.parameters.estimate import CombinationEstimate, ParameterEstimate
    from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
    from sysid_ros.core.estimation.streaming import StreamingEstimator, WindowResiduals, estimate_from_samples
    from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock, split_into_blocks

__all__ = [
    "CombinationEstimate",
    "EstimatorSettings",
    "InvalidSamples",
    "ParameterEstimate",
    "SampleBlock",
    "StreamingEstimator",
    "WindowResiduals",
    "estimate_from_samples",
    "split_into_blocks",
]

_HOMES = {
    "parameters.estimate": ("CombinationEstimate", "ParameterEstimate"),
    "parameters.settings": ("EstimatorSettings",),
    "streaming": ("StreamingEstimator", "WindowResiduals", "estimate_from_samples"),
    "windows.samples": ("InvalidSamples", "SampleBlock", "split_into_blocks"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
