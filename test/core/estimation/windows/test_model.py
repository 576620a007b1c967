import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows.model import CurvatureBounds
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.momentum import MomentumRegressor


def second_derivatives(regressor, theta, q, v):
    """Second derivatives of p and c by differences of exact first ones: dicts qq, qv (velocity last), vv."""
    n, step = q.size, 1e-5
    units = step * np.eye(n)

    def first(q, v):
        d = regressor.differentiate(q[None], v[None])
        return {
            k: np.einsum("ipl,p->il", getattr(d, k)[0], theta)
            for k in ("momentum_q", "momentum_v", "force_q", "force_v")
        }

    by_q = [(first(q + u, v), first(q - u, v)) for u in units]
    by_v = [(first(q, v + u), first(q, v - u)) for u in units]
    stack = lambda pairs, key: np.stack([(a[key] - b[key]) / (2 * step) for a, b in pairs], axis=2)  # noqa: E731
    momentum = dict(qq=stack(by_q, "momentum_q"), qv=stack(by_v, "momentum_q"), vv=stack(by_v, "momentum_v"))
    force = dict(qq=stack(by_q, "force_q"), qv=stack(by_v, "force_q"), vv=stack(by_v, "force_v"))
    return momentum, force


def test_bounds_hold_at_random_postures_speeds_and_parameters(robot):
    unknowns = describe_unknowns(robot, EstimatorSettings())
    bounds = CurvatureBounds(robot.pin_model, unknowns.total, 9.81)
    regressor = MomentumRegressor(robot, EffortMeaning.LINK_SIDE)
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(12):
        corner = rng.integers(0, 2, unknowns.total.lower.size)
        theta = np.where(corner, unknowns.total.upper, unknowns.total.lower)  # also points no body has
        q, v = rng.uniform(-3, 3, robot.n), rng.uniform(-1.5, 1.5, robot.n)
        found = second_derivatives(regressor, theta, q, v)
        for allowed, actual in zip((bounds.momentum(np.abs(v)), bounds.force(np.abs(v))), found, strict=True):
            for name, values in actual.items():
                limit = getattr(allowed, name)
                assert np.all(np.abs(values) <= limit * (1 + 1e-6) + 1e-5), name
                largest = max(largest, float(np.max(np.abs(values) / (limit + 1e-3))))
    assert largest > 0.05  # the bounds are of the right order of magnitude


def test_turning_the_first_joint_changes_no_inertia(robot):
    unknowns = describe_unknowns(robot, EstimatorSettings())
    bounds = CurvatureBounds(robot.pin_model, unknowns.total, 9.81)
    assert np.all(bounds.momentum(np.ones(robot.n)).qq[:, 0] == 0.0)
    assert np.all(bounds.force(np.ones(robot.n)).vv[0] == 0.0)


def test_a_tree_is_refused():
    model = pin.buildSampleModelHumanoid()
    with pytest.raises(ModelError, match="serial arms with revolute joints only"):
        CurvatureBounds(model, None, 9.81)
