"""Polynomials of a path, against dense evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.certification.chain import bounds, enclose_path, quadratic
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.braking import BrakedTrajectory

U = np.linspace(-1.0, 1.0, 41)


def excess(x, values):
    """How far values (..., P, 41) lie outside of a series at most, and how far its parabola alone is off."""
    parabola = x[0][..., None] + x[1][..., None] * U + x[2][..., None] * U**2
    difference = np.abs(values - parabola)
    return (difference - x[3][..., None]).max(), difference.max()


@pytest.fixture(params=["bezier", "fourier"])
def path_maker(request, make_bezier, make_fourier):
    return {"bezier": make_bezier, "fourier": make_fourier}[request.param]


@pytest.mark.parametrize("seed", range(4))
def test_paths_are_enclosed(path_maker, seed):
    trajectory = path_maker(seed)
    count = 30
    half = np.full(count, 0.5 * trajectory.duration / count)
    middle = half * (2 * np.arange(count) + 1)
    path = enclose_path(trajectory, middle, half)
    times = middle[:, None] + half[:, None] * U * (1 - 1e-12)
    # The states at the very ends are those of rest, which another polynomial gives.
    truth = trajectory.sample(times.ravel())
    for polynomials, values in zip((path.position, path.velocity, path.acceleration), truth, strict=True):
        dense = values.reshape(count, U.size, -1).transpose(2, 0, 1)
        exact = np.einsum("knp,ku->npu", polynomials[:-1], U ** np.arange(6)[:, None])
        assert (np.abs(exact - dense) - polynomials[-1][..., None]).max() <= 1e-10
        lower, upper = bounds(polynomials)
        assert (dense.min(axis=2) - lower).min() >= -1e-10 and (upper - dense.max(axis=2)).min() >= -1e-10
        # Tight: within a tenth of what the piece covers.
        spread = dense.max(axis=2) - dense.min(axis=2)
        assert ((upper - lower - spread) / (spread.max() + 1e-9)).max() < 0.1
        outside, _ = excess(quadratic(polynomials), dense)
        assert outside <= 1e-10


def test_a_stopped_path_is_refused(make_bezier):
    stopped = BrakedTrajectory(make_bezier(0), 0.5, 0.3)
    with pytest.raises(ParameterOutOfRange, match="kind 'braked:bezier': expected bezier or fourier"):
        enclose_path(stopped, np.array([0.1]), np.array([0.1]))
