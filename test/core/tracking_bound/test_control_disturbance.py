"""What acts on the errors: the smooth disturbance, friction, norms of boxes of torques."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.tracking_bound.disturbance import bound_friction, bound_torques, speed_range
from sysid_ros.core.tracking_bound.motion import sample_motion
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import tighten
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor


@pytest.fixture(scope="module")
def boxed(robot):
    """A model of which only the boxes are known, that of the payload so narrow that its corners count."""
    model = ControlModel.of_boxes(robot)
    box = Box.around(model.payload, 0.04 * model.payload_box.width)
    return ControlModel(model.theta, model.theta_box, model.payload, box)


def smooth_of(robot, model, samples):
    """The nodes of a motion at which the smooth disturbance is bounded, its nominal inertia there and the bounds."""
    tube_map = TubeMap(robot, model, samples, RobustSettings())
    return samples.every(int(tube_map.fine[1])), tube_map.inertia, tube_map.smooth


def test_smooth_disturbance_covers_the_corners_of_the_boxes(robot, boxed, tools):
    model, settings = boxed, RobustSettings()
    motion = sample_motion(tools.fourier(robot, 1), robot.n, settings)
    samples, inertia, smooth = smooth_of(robot, model, motion)
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
    share = settings.friction_share(samples.v)
    y = regressor.evaluate(samples.q, samples.v, samples.v, samples.a, direction=share)
    rng = np.random.default_rng(0)
    payloads = tighten(model.payload_box)
    lower = add_payload(model.theta_box.lower, payloads.lower) - model.total
    upper = add_payload(model.theta_box.upper, payloads.upper) - model.total
    closest = 0.0
    for trial in range(40):
        if trial:
            difference = np.where(rng.integers(0, 2, lower.size), lower, upper)
        else:  # the worst corner of one entry
            row = np.linalg.solve(inertia[40], y[40])[3]
            difference = np.where(row > 0.0, upper, lower)
        signal = np.linalg.solve(inertia, (y @ difference)[..., None])[..., 0]
        rate = np.diff(signal, axis=0) / samples.step
        assert np.all(np.abs(signal) <= smooth.size.entries + 1e-9)
        assert np.all(np.abs(rate) <= smooth.rate.entries + 1e-9)
        assert np.all(np.einsum("ti,tij,tj->t", signal, inertia, signal) <= smooth.size.norm**2)
        mean = 0.5 * (inertia[1:] + inertia[:-1])
        assert np.all(np.einsum("ti,tij,tj->t", rate, mean, rate) <= smooth.rate.norm**2)
        closest = max(closest, (np.abs(signal) / smooth.size.entries).max())
    assert closest > 0.999  # each single bound is reached


def test_jump_of_the_acceleration_is_seen(robot, boxed):
    start = np.r_[2.0, np.zeros(robot.n - 1)]
    motion = BezierTrajectory(robot.home, np.zeros(robot.n), start, robot.home + 0.1, 1.0)
    samples = sample_motion(motion, robot.n, RobustSettings())
    assert samples.past == 2 and not samples.a[:2].any()
    np.testing.assert_allclose(samples.jumps[1], start, atol=1e-12)
    tube_map = TubeMap(robot, boxed, samples, RobustSettings())
    missed = tube_map.smooth.missed[:, 0]
    jump = int(np.searchsorted(tube_map.fine, 1, side="right")) - 1  # between the nodes 1 and 2 of the motion
    armature = boxed.theta_box.radius[10 * robot.n + 2]
    # What the uncertain armature of the first joint alone does: the polygon rises through the jump, which is in time.
    assert missed[jump] >= 2.0 * armature
    assert missed[jump] > 10.0 * missed[jump + 1]


def test_friction_is_bounded_through_a_reversal(robot):
    model, settings = ControlModel.of_boxes(robot), RobustSettings(friction_speed=0.4)
    v_d = np.linspace(-0.6, 0.6, 241)[:, None] * np.ones(robot.n)
    speeds = speed_range(v_d, np.zeros((240, robot.n)))
    rng = np.random.default_rng(1)
    for error in (0.02, 0.15, 0.3):
        bound = bound_friction(model, settings, speeds, np.full((240, robot.n), error))
        closest = 0.0
        for _ in range(500):
            at = rng.uniform(0.0, 240.0)
            desired = v_d[0] + (v_d[-1] - v_d[0]) * at / 240.0
            v = desired + rng.uniform(-error, error, robot.n)
            missing = np.abs(np.sign(v) - settings.friction_share(desired)) * model.friction_upper()[:, 0]
            assert np.all(missing <= bound[int(at)] + 1e-9)
            closest = max(closest, (missing / bound.max(axis=0)).max())
        assert closest > 0.75
    # Compensated friction that turns out to have the other sign counts double.
    assert bound_friction(model, settings, speeds, np.full((240, robot.n), 0.45)).max() > 1.9 * 0.55


def test_norm_of_a_box_of_torques_is_that_of_its_worst_corner():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 4, 4))
    inverse = root @ root.transpose(0, 2, 1)
    torques = rng.uniform(size=(3, 4))
    bound = bound_torques(inverse, torques)
    h = rng.uniform(-1.0, 1.0, size=(20000, 4)).round() * torques[:, None]
    norms = np.sqrt(np.einsum("tki,tij,tkj->tk", h, inverse, h))
    np.testing.assert_allclose(bound.norm, norms.max(axis=1), rtol=1e-12)
    accelerations = np.einsum("tij,tkj->tki", inverse, h)
    np.testing.assert_allclose(bound.entries, np.abs(accelerations).max(axis=1), rtol=1e-12)


def test_motions_that_do_not_fit_are_refused(robot):
    moving = BezierTrajectory(robot.home, np.full(robot.n, 0.1), np.zeros(robot.n), robot.home, 1.0)
    with pytest.raises(ParameterOutOfRange, match="a motion that starts at rest"):
        sample_motion(moving, robot.n, RobustSettings())
    with pytest.raises(ParameterOutOfRange, match="number of joints of the trajectory 7: expected 6"):
        sample_motion(moving, 6, RobustSettings())
    with pytest.raises(ParameterOutOfRange, match="posture .* expected 7 finite numbers"):
        sample_motion(np.full(7, np.nan), 7, RobustSettings())
