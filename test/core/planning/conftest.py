"""Trajectories and robots the planning tests run on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
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


LINK = """<link name="{name}"><inertial><origin xyz="{middle} 0 0"/><mass value="1"/>
<inertia ixx="0.01" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial><collision><origin xyz="{middle} 0 0"
rpy="0 1.5707963 0"/><geometry><cylinder radius="0.04" length="{length}"/></geometry></collision></link>"""
JOINT = """<joint name="to_{name}" type="revolute"><parent link="{parent}"/><child link="{name}"/>
<origin xyz="{before} 0 0" rpy="{rpy}"/><axis xyz="{axis}"/>
<limit lower="{lower}" upper="{upper}" velocity="2" effort="200"/></joint>"""


def _chain(lengths, ranges=None, axes=None, turns=None, **settings):
    """An arm of cylinders of 4 cm, one after the other along x, by default in a plane with joints of +-2.9 rad."""
    count, parts = len(lengths), ['<robot name="chain"><link name="base"/>']
    ranges, axes, turns = ranges or [(-2.9, 2.9)] * count, axes or [(0, 0, 1)] * count, turns or [(0, 0, 0)] * count
    for k, (length, (lower, upper)) in enumerate(zip(lengths, ranges, strict=True)):
        numbers = {"axis": " ".join(map(repr, axes[k])), "rpy": " ".join(map(repr, turns[k]))}
        place = {"parent": chr(96 + k) if k else "base", "before": lengths[k - 1] if k else 0.0}
        parts.append(LINK.format(name=chr(97 + k), middle=0.5 * length, length=length))
        parts.append(JOINT.format(name=chr(97 + k), lower=lower, upper=upper, **numbers, **place))
    return load_robot_from_urdf("".join([*parts, "</robot>"]), settings=settings)


@pytest.fixture(scope="session")
def make_chain():
    return _chain


@pytest.fixture(scope="session")
def gen3():
    return load_robot("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def boxes(gen3):
    return gen3.theta_box, gen3.payload_prior.box


@pytest.fixture(scope="session")
def tracking():
    return Tracking(np.full(N, 0.01), np.full(N, 0.02))
