"""The point estimate in results and files: physically consistent, and as central in its bounds as a body can be.

The least-squares estimate lies on a bound wherever the data pull it there, and so do derived numbers; the middle of the
bounds is nearer to the truth more often, but need not be a body. This is the body nearest to that middle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.point.coordinates import from_parameters
from sysid_ros.core.estimation.point.fit import Fit, FitNotConverged, FitObjective, NoBodyInBox, fit
from sysid_ros.core.model.robot import PayloadShape

Array = NDArray[np.float64]

_GAP = 1e-4
"""Of the squared distance from the middle, in radii."""


def center_body(box: Box, start: ArrayLike, shape: PayloadShape | None = None) -> Array:
    """Return the physically consistent body of a box that is nearest to its middle, in units of its radii, (10,).

    Args:
        box: Bounds of the ten parameters.
        start: A physically consistent body to start from, (10,).
        shape: Shape of the body as an object; ignored where no body of the box has it.

    Raises:
        NoBodyInBox: No body has parameters within the bounds.
        FitNotConverged: None was found.
    """
    radius = np.maximum(box.radius, 1e-9)
    objective = FitObjective(np.diag(1.0 / radius**2), np.zeros(10), box.center)
    found: Fit = fit(objective, from_parameters(start), box, _GAP)
    if shape is None:
        return found.theta
    try:
        for _ in range(2):  # the radius of gyration is limited about the CoM of the round before
            found = fit(objective, found.eta, box, _GAP, shape)
    except (NoBodyInBox, FitNotConverged):
        pass
    return found.theta
