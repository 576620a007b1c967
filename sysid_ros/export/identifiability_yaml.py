"""The structural answer for programs: base parameters with their coefficients, classes of all parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from sysid_ros.core.identifiability.snapping import Comparison
from sysid_ros.core.identifiability.wording import explain


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
