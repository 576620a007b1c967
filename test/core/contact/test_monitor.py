"""The reference follows the estimator, then stays; contacts are reported window by window."""

import numpy as np
import pytest

from sysid_ros.core.contact.monitor import ContactMonitor
from sysid_ros.core.contact.wrench import ContactSettings
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator

SETTINGS = EstimatorSettings(max_windows=20, update_windows=10, detect_payload_change=True)
PIECE = 25


def run(robot, block, reference=2.0):
    """Reports of a recording that comes piece by piece, each with whether the reference was complete before it."""
    estimator = StreamingEstimator(robot, SETTINGS)
    monitor = ContactMonitor(robot, estimator, ContactSettings(reference_duration=reference))
    reports = []
    for first in range(0, len(block), PIECE):
        piece = block.slice(first, first + PIECE)
        estimator.add(piece)
        reports += monitor.add(piece)
    return reports, monitor, estimator


@pytest.fixture(scope="module")
def contact(robot, pushed):
    """A strong push from 3 s on; the estimator restarts because of it."""
    arm = pushed(robot, 0, np.array([0.0, 80.0, 0.0, 0.0, 0.0, 0.0]), since=3.0)
    return arm, *run(robot, arm.record(4.0))


def test_a_push_is_proven_after_it_began_and_the_wrench_is_inside(contact):
    arm, reports, _, _ = contact
    assert len(reports) >= 39
    for report in reports:
        start, stop = 1e-9 * report.torque.start, 1e-9 * report.torque.stop
        assert np.all(report.smallest > 0.0)
        if stop <= arm.since:
            assert not report.torque.is_proven.any() and not report.wrench.is_proven.any()
        elif start >= arm.since:
            assert report.torque.is_proven.any()
            assert np.all(report.wrench.lower <= arm.wrench) and np.all(arm.wrench <= report.wrench.upper)


def test_the_complete_reference_outlives_a_restart_of_the_estimator(contact):
    _, _, monitor, estimator = contact
    assert monitor.is_complete and estimator.estimate().number_of_windows < 20
    assert monitor.reference.rows > 0


def test_a_restart_takes_a_new_reference(robot, pushed):
    block = pushed(robot, 1, np.zeros(6)).record(2.5)
    reports, monitor, _ = run(robot, block, reference=1.5)
    assert monitor.is_complete
    monitor.restart()
    assert not monitor.is_complete and monitor.reference.rows == 0


@pytest.mark.slow
def test_without_a_reference_only_boxes_count(robot, pushed):
    block = pushed(robot, 1, np.zeros(6)).record(2.0)
    alone, monitor, _ = run(robot, block, reference=0.0)
    learned, _, _ = run(robot, block, reference=1.5)
    assert monitor.is_complete and monitor.reference.rows == 0
    assert np.all(learned[-1].torque.width < alone[-1].torque.width)
