"""What a goal tells beside the bounds: hypotheses about an alarm, a statistical interval."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sysid_msgs.action import Identify
from sysid_ros.adapters.identification import goals
from sysid_ros.adapters.identification.monitor import Records
from sysid_ros.adapters.identification.results import (
    Evidence,
    add_evidence,
    ask_settings,
    find_evidence,
    interval_of,
    samples_of_estimate,
)
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.hypotheses import Assumption, Explanation, Hypothesis
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.point.statistics import compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed
from sysid_ros.reports.result import collect_rows
from sysid_ros.ros.conversions.samples import Samples
from sysid_ros.ros.parameters import declared

COUNT = 2000


@pytest.fixture(scope="module")
def parts(robot):
    """Samples of a slow motion with nothing in the hand, in portions; the first tenth is of another payload."""
    import pinocchio as pin

    t, w = 1e-3 * np.arange(COUNT), np.arange(1, robot.n + 1)
    q, v = robot.home + 0.2 * np.sin(np.outer(t, w)), 0.2 * w * np.cos(np.outer(t, w))
    a, data = -0.2 * w**2 * np.sin(np.outer(t, w)), robot.pin_model.createData()
    tau = np.array([pin.rnea(robot.pin_model, data, *row) for row in zip(q, v, a, strict=True)])
    tau += v * robot.friction(robot.theta_nominal)[:, 1] + np.sign(v) * robot.friction(robot.theta_nominal)[:, 0]
    tau += a * robot.friction(robot.theta_nominal)[:, 2]
    stamps, nothing = 10**18 + 1_000_000 * np.arange(COUNT), np.zeros((100, robot.n))
    found = []
    for first in range(0, COUNT, 100):
        part = slice(first, first + 100)
        columns = stamps[part], np.arange(first, first + 100), q[part], v[part], tau[part], *[nothing] * 4
        found.append(Samples(*columns, np.ones(100, bool), np.zeros(100, np.uint8), int(first >= 200), 0))
    return found


@pytest.fixture(scope="module")
def estimate(robot):
    return StreamingEstimator(robot, EstimatorSettings()).estimate()


def test_samples_are_those_of_the_present_payload_from_where_the_estimator_began(parts):
    assert samples_of_estimate(Records()) is None
    block = samples_of_estimate(Records(samples=parts))
    assert len(block) == COUNT - 200 and block.stamps[0] == parts[2].stamps[0]
    begun = Records(samples=parts, first_stamp_ns=int(parts[5].stamps[10]))
    assert samples_of_estimate(begun).stamps[0] == parts[5].stamps[10]


def test_the_interval_is_that_of_all_samples_of_the_estimate(robot, parts, estimate):
    settings, records = EstimatorSettings(window_duration=0.05), Records(samples=parts)
    usable = replace(estimate, values=robot.payload_prior.nominal, number_of_windows=9)
    found = find_evidence(robot, settings, usable, records).statistical
    rows = collect_rows(robot, settings, [samples_of_estimate(records)])
    expected = compute_statistical_interval(robot, settings, rows, usable.box)
    np.testing.assert_allclose(found.lower, expected.lower, rtol=1e-9, atol=1e-12)
    assert np.all((usable.lower <= found.lower) & (found.upper <= usable.upper))
    result = Identify.Result()
    assert interval_of(result) is None
    add_evidence(result, Evidence(statistical=found))
    received = interval_of(result)
    np.testing.assert_allclose(received.upper, found.upper, rtol=1e-12)
    assert received.confidence == 0.95 and np.all(received.lower < received.upper)
    assert find_evidence(robot, None, usable, records) == Evidence()
    assert find_evidence(robot, settings, usable, records, is_cancelled=lambda: True).statistical is None


def test_a_wrong_sign_is_told_in_field_and_text(robot, parts, estimate):
    turned = [replace(part, tau=-part.tau) for part in parts]
    alarm = replace(estimate, is_consistent=False, alarm=Alarm(AlarmCode.WINDOW_INCONSISTENT, "no payload agrees"))
    evidence = find_evidence(robot, None, alarm, Records(samples=turned[:10]))
    result = Identify.Result(error_code=Identify.Result.INCONSISTENT, error_text="no payload agrees")
    add_evidence(result, evidence)
    first = result.hypotheses[0]
    assert (first.assumption, first.joint) == ("effort_sign", "") and first.check.startswith("hold the arm still")
    start = "no payload agrees. What could be wrong, likeliest first, none of it proven: 1. the data agree if the sign"
    assert result.error_text.startswith(start)


def test_samples_that_come_after_their_estimate_are_waited_for(robot, parts, estimate):
    """Right after a reset the estimator may see an alarm before the goal has any of its samples."""
    turned = [replace(part, tau=-part.tau) for part in parts[:30]]
    last = int(turned[-1].stamps[-1])
    alarm = replace(estimate, is_consistent=False, alarm=Alarm(AlarmCode.WINDOW_INCONSISTENT, "no payload agrees"))
    records = Records(first_stamp_ns=int(turned[2].stamps[0]))
    monitor = SimpleNamespace(estimate=alarm, estimate_stamp_ns=last, sample_stamp_ns=0, records=records, tare=None)
    told, warned = [], []

    def wait_until(condition, seconds):
        assert not condition() and seconds > 1.0
        monitor.records.samples, monitor.sample_stamp_ns = turned, last
        return condition()

    goal = SimpleNamespace(
        _monitor=monitor, _robot=robot, _is_cancelled=lambda: False, _say=told.append,
        _session=SimpleNamespace(wait_until=wait_until), _logger=SimpleNamespace(warning=warned.append),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(goals, "ask_settings", lambda session: EstimatorSettings())
        result = Identify.Result(error_code=Identify.Result.INCONSISTENT)
        evidence = goals.GoalRun._find_evidence(goal, result)
    assert evidence.explanation.hypotheses[0].assumption is Assumption.EFFORT_SIGN and not warned
    check = evidence.windows
    assert check.contradictions(robot.joint_names) and check.times[0] > 0.2, "counted from the first sample of the goal"
    assert told == ["looking for what could be wrong"]


def test_at_most_three_hypotheses_are_in_the_text_and_all_in_the_field():
    one = Hypothesis(Assumption.TORQUE_LAG, None, 0.01, 1.0, "lagged by 10 ms", 0.1, 0.01)
    result = Identify.Result(error_text="infeasible")
    add_evidence(result, Evidence(Explanation(2.0, (one,) * 5, 9)))
    assert len(result.hypotheses) == 5 and "3. " in result.error_text and "4. " not in result.error_text
    assert result.hypotheses[0].unit == "s" and result.hypotheses[0].amount == 0.01
    unchanged = Identify.Result(error_text="infeasible")
    add_evidence(unchanged, Evidence(Explanation(2.0, (), 9)))
    assert unchanged.error_text == "infeasible"


def test_settings_are_those_that_the_estimator_says():
    from rclpy.parameter import Parameter

    from sysid_ros.adapters.estimator import EstimatorParameters

    known = declared(EstimatorParameters)
    changed = {"window_duration": 0.2, "torque_lag": 0.01}

    def call(client, request, *_, **__):
        assert client == "parameters" and set(changed) < set(request.names)
        values = [
            Parameter(name, value=changed.get(name, known[name].declared_default)).get_parameter_value()
            for name in request.names
        ]
        return SimpleNamespace(values=values)

    clients = SimpleNamespace(estimator_parameters="parameters")
    assert ask_settings(SimpleNamespace(clients=clients, call=call)) == EstimatorSettings(**changed)
    for error in (IdentificationFailed(IdentificationErrorCode.TIMEOUT, "silent"), SysidError("strange")):

        def fail(*_, error=error, **__):
            raise error

        assert ask_settings(SimpleNamespace(clients=clients, call=fail)) is None
