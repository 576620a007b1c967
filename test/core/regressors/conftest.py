"""Models and parameters the regressor tests run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot_files import available_robots

ROBOTS = available_robots()
TREES = ("chain", "tree", "two roots")
# Pinocchio numbers joints depth first: each branch is finished before the next one starts.
PARENTS = {"chain": (0, 1, 2, 3, 4), "tree": (0, 1, 2, 2, 4, 1, 6, 6), "two roots": (0, 1, 0, 3, 3)}


@dataclass(frozen=True)
class Case:
    """A model with random parameters and samples."""

    model: pin.Model
    theta: np.ndarray  # (14 n,)
    q: np.ndarray  # (N, n)
    v: np.ndarray
    a: np.ndarray

    @property
    def n(self) -> int:
        return self.model.nv

    @property
    def inertial(self) -> np.ndarray:
        """``theta`` with all friction zero."""
        return np.concatenate([self.theta[: 10 * self.n], np.zeros(4 * self.n)])

    @property
    def friction(self) -> np.ndarray:
        """F_c, F_v, I_a, beta, (n, 4)."""
        return self.theta[10 * self.n :].reshape(self.n, 4)


def random_inertia(rng: np.random.Generator) -> pin.Inertia:
    """A rigid body of ten point masses."""
    points, masses = rng.normal(scale=0.2, size=(10, 3)), rng.uniform(0.05, 0.4, size=10)
    center = masses @ points / masses.sum()
    offsets = points - center
    second = np.einsum("k,ki,kj->ij", masses, offsets, offsets)
    return pin.Inertia(masses.sum(), center, np.trace(second) * np.eye(3) - second)


def random_joint(rng: np.random.Generator, kind: int) -> pin.JointModel:
    """Revolute and prismatic joints about base and arbitrary axes, and a helical one."""
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    return (
        pin.JointModelRevoluteUnaligned(axis),
        pin.JointModelPrismaticUnaligned(axis),
        pin.JointModelRY(),
        pin.JointModelPX(),
        pin.JointModelRX(),
        pin.JointModelRZ(),
        pin.JointModelPZ(),
        pin.JointModelHZ(0.3),
    )[kind]


def random_tree(rng: np.random.Generator, parents: Sequence[int], first_kind: int = 0) -> pin.Model:
    """A tree in which each joint, of the next kind each time, moves a random body; ``parents`` count the base as 0."""
    model = pin.Model()
    for k, parent in enumerate(parents):
        placement = pin.SE3(pin.Quaternion(rng.normal(size=4)).normalized().matrix(), rng.normal(scale=0.4, size=3))
        joint = model.addJoint(parent, random_joint(rng, (k + first_kind) % 8), placement, f"joint_{k}")
        model.appendBodyToJoint(joint, random_inertia(rng), pin.SE3.Identity())
    model.gravity.linear = rng.normal(scale=5.0, size=3)  # a tilted base
    return model


@cache
def model_named(name: str) -> pin.Model:
    if name not in TREES:
        return load_robot(name).pin_model
    number = TREES.index(name)
    return random_tree(np.random.default_rng(number), PARENTS[name], 3 * number)


@pytest.fixture(params=[*TREES, *ROBOTS])
def case(request: pytest.FixtureRequest) -> Case:
    """Every robot of the suite and random trees, with samples of large velocities."""
    model = model_named(request.param)
    rng = np.random.default_rng(7)
    inertial = np.concatenate([inertia.toDynamicParameters() for inertia in list(model.inertias)[1:]])
    q, v, a = rng.uniform(-2.5, 2.5, size=(3, 6, model.nv))
    return Case(model, np.concatenate([inertial, rng.uniform(0.1, 1.0, size=4 * model.nv)]), q, v, a)


@pytest.fixture
def chain() -> Case:
    """One random chain with prismatic joints, for tests of arguments."""
    model = model_named("chain")
    rng = np.random.default_rng(8)
    inertial = np.concatenate([inertia.toDynamicParameters() for inertia in list(model.inertias)[1:]])
    q, v, a = rng.uniform(-1.5, 1.5, size=(3, 4, model.nv))
    return Case(model, np.concatenate([inertial, rng.uniform(0.1, 1.0, size=4 * model.nv)]), q, v, a)


@pytest.fixture
def make_tree():
    """Make random trees; see :func:`random_tree`."""
    return random_tree
