"""Plans, chains and simulated plants that tests of several packages use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from textbook import load_textbook
from true_arm import Plant

from sysid_ros.core.model.loader import load_robot_from_urdf
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory, rest_projection

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

SENSORS = {
    "effort_meaning": "motor_side",
    "effort_sign": 1,
    "effort_relative_error": 0.025,
    "effort_absolute_error": 0.05,
    "effort_is_held": True,
    "position_resolution": 1.0e-4,
    "velocity_error": 0.002,
    "stamp_jitter": 2.0e-5,
}


def _chain(lengths, ranges=None, axes=None, turns=None, **settings):
    """An arm of cylinders of 4 cm, one after the other along x, by default in a plane with joints of +-2.9 rad."""
    count, parts = len(lengths), ['<robot name="chain"><link name="base"/>']
    ranges, axes, turns = ranges or [(-2.9, 2.9)] * count, axes or [(0, 0, 1)] * count, turns or [(0, 0, 0)] * count
    for k, (length, (lower, upper)) in enumerate(zip(lengths, ranges, strict=True)):
        numbers = {"axis": " ".join(map(repr, axes[k])), "rpy": " ".join(map(repr, turns[k]))}
        place = {"parent": chr(96 + k) if k else "base", "before": lengths[k - 1] if k else 0.0}
        parts.append(LINK.format(name=chr(97 + k), middle=0.5 * length, length=length))
        parts.append(JOINT.format(name=chr(97 + k), lower=lower, upper=upper, **numbers, **place))
    known = {"friction": {f"to_{chr(97 + k)}": {"nominal": [0.0] * 4, "radius": [0.0] * 4} for k in range(count)}}
    known |= {"inertial_uncertainty": {"relative": 0.05}, "sensors": SENSORS, **settings}
    return load_robot_from_urdf("".join([*parts, "</robot>"]), settings=known)


def _collision_pairs(robot, spheres=None):
    """Indices of the spheres that have to stay apart, (k, 2): of bodies with at least one other between them.

    Neighbouring bodies share a joint, where their spheres overlap always; links that ``never_touch`` are left out too.
    """
    chosen = robot.spheres if spheres is None else spheres
    exempt = {frozenset(pair) for pair in robot.never_touch}
    pairs = [
        (i, j) if first.body < second.body else (j, i)
        for i, first in enumerate(chosen)
        for j, second in enumerate(chosen[:i])
        if abs(first.body - second.body) >= 2 and frozenset((first.link, second.link)) not in exempt
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@pytest.fixture(scope="session")
def collision_pairs():
    return _collision_pairs


@pytest.fixture(scope="session")
def make_chain():
    return _chain


@pytest.fixture(scope="session")
def gen3():
    return load_textbook()


@pytest.fixture(scope="session")
def boxes(gen3):
    return gen3.theta_box, gen3.payload_prior.box


@pytest.fixture(scope="session")
def tracking():
    return Tracking(np.full(N, 0.01), np.full(N, 0.02))


PERIOD = 1e-3


@dataclass(frozen=True)
class Run:
    """What happened: times, true errors and torques, one row per sample."""

    time: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray

    def after(self, time: float) -> Run:
        """The samples from a time on."""
        late = self.time >= time
        return Run(self.time[late], self.position[late], self.velocity[late], self.torque[late])


def simulate(
    robot: RobotModel,
    controller,
    truth: tuple[np.ndarray, np.ndarray],
    reference: Callable,
    duration: float,
    hold: float,
    noise: str = "uniform",
    delay: int = 1,
    seed: int = 0,
) -> Run:
    """Holds the start of a motion for ``hold``, then follows it; the torque acts ``delay`` samples late.

    Velocity errors are drawn evenly ("uniform"), or have their largest size and the sign that drives the error on
    ("pushing") or that undamps it ("undamping"). Where the velocity is the difference of two positions, those have
    such errors instead; with "undamping" from sample to sample of the other sign.
    """
    rng = np.random.default_rng(seed)
    resolution, largest = robot.sensors.position_resolution, robot.sensors.velocity_error
    plant = Plant(robot, *truth, reference(0.0)[0])
    waiting, before = deque([np.zeros(robot.n)] * 0), None
    rows = []
    for sample in range(round((hold + duration) / PERIOD)):
        time = sample * PERIOD - hold
        q_d, v_d, a_d = reference(time)
        rows.append((time, q_d - plant.q, v_d - plant.v))
        error = {
            "uniform": rng.uniform(-largest, largest),
            "pushing": largest * np.sign(q_d - plant.q),
            "undamping": -2.0 * largest * (v_d - plant.v > 0.0) + largest,
        }[noise]
        q, v = np.round(plant.q / resolution) * resolution, plant.v + error
        if robot.sensors.velocity_is_difference:
            size = 0.5 * resolution + robot.sensors.stamp_jitter * np.abs(plant.v)
            sign = error / largest if noise != "undamping" else np.full(robot.n, (-1.0) ** sample)
            q = plant.q + size * sign
            v = (q - (q if before is None else before)) / PERIOD
            before = q
        waiting.append(controller.compute(q, v, q_d, v_d, a_d))
        tau = waiting.popleft() if len(waiting) > delay else waiting[0]
        rows[-1] += (tau,)
        plant.advance(tau, PERIOD)
    return Run(*(np.array(column) for column in zip(*rows, strict=True)))


def fast_fourier(robot: RobotModel, seed: int, amplitude: float = 0.5) -> FourierTrajectory:
    """Five seconds of 0.2 to 0.6 Hz in all joints."""
    rng = np.random.default_rng(seed)
    order = np.arange(1, 4)
    sine, cosine = rng.normal(size=(2, robot.n, order.size))
    sine -= sine.mean(axis=1, keepdims=True)
    cosine -= np.outer(cosine @ order, order) / (order @ order)
    shape = FourierTrajectory(robot.home, sine, cosine, 0.2, 5.0)
    lower, upper = shape.position_extrema()
    scale = (amplitude / np.maximum(upper - robot.home, robot.home - lower))[:, None]
    return FourierTrajectory(robot.home, scale * sine, scale * cosine, 0.2, 5.0)


@pytest.fixture(scope="session")
def tools():
    """What tests of the closed loop share."""

    class Tools:
        plant = Plant
        run = staticmethod(simulate)
        fourier = staticmethod(fast_fourier)

    return Tools
