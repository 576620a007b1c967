import numpy as np
import pinocchio as pin
import pytest
from true_arm import true_model

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows import errors
from sysid_ros.core.estimation.windows.model import CurvatureBounds, Window, WindowModel, WindowSignals
from sysid_ros.core.estimation.windows.samples import SampleBlock
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
        for allowed, actual in zip(
            (bounds.momentum(np.abs(v), bounds.first), bounds.force(np.abs(v), bounds.first)), found, strict=True
        ):
            for name, values in actual.items():
                limit = getattr(allowed, name)
                assert np.all(np.abs(values) <= limit * (1 + 1e-6) + 1e-5), name
                largest = max(largest, float(np.max(np.abs(values) / (limit + 1e-3))))
    assert largest > 0.05  # the bounds are of the right order of magnitude


def test_turning_the_first_joint_changes_no_inertia(robot):
    unknowns = describe_unknowns(robot, EstimatorSettings())
    bounds = CurvatureBounds(robot.pin_model, unknowns.total, 9.81)
    assert np.all(bounds.momentum(np.ones(robot.n), bounds.first).qq[:, 0] == 0.0)
    assert np.all(bounds.first[0] == 0.0)


def test_a_tree_is_refused():
    model = pin.buildSampleModelHumanoid()
    with pytest.raises(ModelError, match="serial arms with revolute joints only"):
        CurvatureBounds(model, None, 9.81)


@pytest.mark.parametrize("turn", [0.08, 5.0])
def test_slopes_of_the_inertia_in_a_window_hold_between_its_points(robot, turn, monkeypatch):
    """Against finite differences of Pinocchio's inertia, for parameters at the corners of their box."""
    monkeypatch.setattr(errors, "_TURN", turn)
    settings, rng = EstimatorSettings(), np.random.default_rng(4)
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    times = 0.004 * np.arange(126)
    swing, start = rng.uniform(-0.6, 0.6, robot.n), rng.uniform(-1.0, 1.0, robot.n)
    q, v = start + np.outer(np.sin(3.0 * times), swing), 3.0 * np.outer(np.cos(3.0 * times), swing)
    block = SampleBlock((1e9 * times).astype(np.int64), np.arange(times.size), q, v, np.zeros_like(q))
    signals = WindowSignals.of(model, Window(block, 0, len(q) - 1, 0))
    bound, nearest, step = errors.inertia_slopes(model, signals), 0.0, 1e-5
    assert np.all(bound <= model.curvature.first) and (turn > 1.0 or bound.sum() < 0.4 * model.curvature.first.sum())
    for _ in range(30):
        corner = rng.integers(0, 2, unknowns.total.lower.size)
        theta = np.where(corner, unknowns.total.upper, unknowns.total.lower)
        arm = true_model(robot, theta)
        here = q[rng.integers(len(q))] + rng.uniform(-1.0, 1.0, robot.n) * signals.position_error
        for joint, unit in enumerate(np.eye(robot.n)):
            ahead, behind = (
                np.array(pin.crba(arm, arm.createData(), here + sign * step * unit, pin.Convention.WORLD))
                for sign in (1.0, -1.0)
            )
            slope = np.triu(np.abs(ahead - behind)) / (2.0 * step)
            assert np.all(slope <= bound[joint] * (1.0 + 1e-6) + 1e-7)
            nearest = max(nearest, float((slope / (bound[joint] + 1e-3)).max()))
    assert turn > 1.0 or nearest > 0.5


def test_a_point_and_its_samples_stay_together_where_points_are_joined(robot):
    """The way from a point to a state near one of its samples is then within what a single slope's bound allows for."""
    settings = EstimatorSettings()
    model, still = WindowModel(robot, settings, describe_unknowns(robot, settings)), np.zeros((126, robot.n))
    block = SampleBlock(4_000_000 * np.arange(126), np.arange(126), still, still, still)
    near = errors._Neighbours.of(WindowSignals.of(model, Window(block, 0, 125, 0)))
    samples = np.arange(126)
    for count in (1, 2, 3, 7, 100):
        joined = near.joined(count)
        of_point = near.points[np.searchsorted(near.first, samples, side="right") - 1]
        assert np.all(np.isin(joined.points, near.points))
        own, others = (np.searchsorted(joined.first, places, side="right") for places in (samples, of_point))
        np.testing.assert_array_equal(own, others)
