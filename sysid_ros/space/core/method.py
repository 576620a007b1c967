"""Methods of estimating the minimal parameters of a free-flying robot."""

from __future__ import annotations

from enum import Enum


class Method(Enum):
    """Method of estimating the minimal parameters."""

    LEAST_SQUARES = "least squares"
    """SPACE (27)."""
    WEIGHTED = "weighted least squares"
    """Rows weighted by the covariance that noise gives them, in a few steps; noise in the regressor still biases."""
    TOTAL = "total least squares"
    """Maximum likelihood with white noise of base twist and joint rates: regressor and rows are both corrected."""
