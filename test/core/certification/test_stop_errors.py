"""What certificates leave for the errors of stops is more than proven bounds of stops need, fast and slow."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.certification.stop_model import STOP_ERRORS, STOP_SPEED, stop_torque_growth, stop_torque_growths
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.tracking_bound import choose_payload, tracking_bound
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

BRAKE_TIMES = 0.4, 0.8
TIMES = 0.6, 1.5


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("reach", [0.05, 0.3, 1.0])
def test_stops_stay_within_what_is_left_for_them(gen3, reach, is_empty):
    prior = gen3.payload_prior
    box = Box(np.zeros(10), np.zeros(10)) if is_empty else prior.box
    boxes = gen3.theta_box, box
    nominal = choose_payload(gen3, boxes, np.zeros(10) if is_empty else prior.nominal)
    directions = np.array([0.9, -0.7, 1.0, 0.8, -1.0, 0.6, 1.0])
    still = np.zeros(7)
    path = BezierTrajectory(gen3.home, still, still, gen3.home + reach * directions, 3.0)
    own = tracking_bound(gen3, ControlModel.of_boxes(gen3, boxes, nominal), path)
    for begin in TIMES:
        for brake_time in BRAKE_TIMES:
            stop = tracking_bound(
                gen3, ControlModel.of_boxes(gen3, boxes, nominal), BrakedTrajectory(path, begin, brake_time)
            )
            growth = stop_torque_growths(path, brake_time, np.array([begin]))[0]
            assert np.all(stop.position <= STOP_ERRORS * own.position)
            assert np.all(stop.velocity <= STOP_ERRORS * own.velocity)
            assert np.all(stop.torque <= (1.0 + growth) * own.torque)


def test_slow_motions_leave_less_for_stops(gen3):
    still, end = np.zeros(7), np.linspace(0.1, 1.0, 7)
    peaks = []
    for reach in (1.5, 3.0, 0.2):
        path = BezierTrajectory(gen3.home, still, still, gen3.home + reach * end, 3.0)
        speed = np.abs(path.velocity_extrema()).max()
        growth = stop_torque_growths(path, 0.5, np.array([1.5]))[0]
        peaks.append((speed, growth / stop_torque_growth(0.5)))
    assert [share for _, share in peaks[:2]] == pytest.approx([1.0, 1.0])
    assert peaks[2][0] < STOP_SPEED
    assert peaks[2][1] == pytest.approx(peaks[2][0] / STOP_SPEED, rel=1e-3)
