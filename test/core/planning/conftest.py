"""Trajectories and robots the planning tests run on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.fourier import rest_projection
from sysid_ros.core.planning.trajectory import BezierTrajectory, BrakedTrajectory, FourierTrajectory

N = 7


@dataclass(frozen=True)
class Tracking:
    """Errors of a controller."""

    position: np.ndarray
    velocity: np.ndarray


def _bezier(seed: int = 0) -> BezierTrajectory:
    rng = np.random.default_rng(seed)
    return BezierTrajectory(*rng.normal(size=(4, N)), duration=rng.uniform(1.0, 4.0))


def _fourier(seed: int = 0, periods: int = 1, harmonics: int = 5) -> FourierTrajectory:
    rng = np.random.default_rng(seed)
    sine_basis, cosine_basis = rest_projection(harmonics)
    sine, cosine = rng.normal(size=(2, N, harmonics - 1)) * 0.3
    return FourierTrajectory(rng.normal(size=N), sine @ sine_basis.T, cosine @ cosine_basis.T, 0.2, 5.0 * periods)


_MAKERS = {
    "bezier": _bezier,
    "fourier": _fourier,
    "fourier of 2 periods": lambda seed: _fourier(seed, periods=2),
    "braked bezier": lambda seed: BrakedTrajectory(_bezier(seed), 0.4 * _bezier(seed).duration, 0.5),
    "braked fourier": lambda seed: BrakedTrajectory(_fourier(seed), 1.7, 0.8),
    "braked at the end": lambda seed: BrakedTrajectory(_bezier(seed), 0.95 * _bezier(seed).duration, 0.6),
}


@pytest.fixture(params=_MAKERS)
def make_trajectory(request):
    """Maker of one kind of trajectory from a seed; every test with it runs for all kinds."""
    return _MAKERS[request.param]


@pytest.fixture
def make_bezier():
    return _bezier


@pytest.fixture
def make_fourier():
    return _fourier


@pytest.fixture(scope="session")
def gen3():
    return load_robot("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def boxes(gen3):
    return gen3.theta_box, gen3.payload_prior.box


@pytest.fixture(scope="session")
def tracking():
    return Tracking(np.full(N, 0.01), np.full(N, 0.02))
