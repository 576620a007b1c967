"""What the arm over topics and services knows of time, with a clock, a driver and samples of the test."""

from types import SimpleNamespace

import numpy as np
import pytest
from doubles import make_certificate

from sysid_msgs.msg import DriverStatus, PlanStatus
from sysid_msgs.srv import PlanNext
from sysid_ros.adapters.estimator import EstimatorParameters
from sysid_ros.adapters.identification import arm as arm_module
from sysid_ros.adapters.identification.arm import (
    BRAKE_TIMEOUT,
    EXPECTED_CHECK_TIME,
    START_TIMEOUT,
    TAKEOVER_RESERVE,
    RosArm,
)
from sysid_ros.adapters.identification.monitor import PlanProgress, Records
from sysid_ros.adapters.identification.session import RosPlanner
from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.planning.request import PlanFailureCode
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed, PayloadModel, StopUnconfirmed
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop_types import RefusalCode
from sysid_ros.emulators.lockstep import LockstepSettings
from sysid_ros.ros.conversions.common import stamp_to_message

DURATION, HANDOVER = 3.0, 1.5


def make_plan(robot, predecessor=None, distance=0.1):
    still = np.zeros(robot.n)
    path = BezierTrajectory(robot.home, still, still, robot.home + distance, DURATION)
    before, takeover_time = (None, 0.0) if predecessor is None else (predecessor.plan_id, HANDOVER)
    certificate = make_certificate(path, predecessor=before, takeover_time=takeover_time)
    boxes = robot.theta_box, robot.payload_prior.box
    return CertifiedPlan(path, certificate, boxes, Scene(), robot.name, HANDOVER, np.eye(10))


class FakeMonitor(SimpleNamespace):
    """What was heard; set by the test."""

    def forget_plan(self, plan_id):
        self.followed.pop(plan_id, None)

    @property
    def is_moving(self):
        return self.status.mode == DriverStatus.MODE_TRACK


class Bench:
    """An arm whose plans are all accepted; its time is set by hand, apart from that of the clock."""

    def __init__(self, robot, monkeypatch):
        self.clock, self.answer = 100.0, SimpleNamespace(accepted=True, proof_time=0.2)
        status = DriverStatus(mode=DriverStatus.MODE_HOLD, code=DriverStatus.CODE_OK)
        self.monitor = FakeMonitor(
            records=Records(), status=status, status_time=self.clock, sample_time=self.clock,
            sample_stamp_ns=round(50e9), followed={}, check_times=[],
        )  # fmt: skip
        self.warnings = []
        logger = SimpleNamespace(warning=self.warnings.append, error=self.warnings.append)
        self.session = session = SimpleNamespace(
            monitor=self.monitor, robot=robot, clients=SimpleNamespace(execute="execute", brake="brake"),
            options=SimpleNamespace(service_timeout=1.0), node=SimpleNamespace(get_logger=lambda: logger),
            wait_until=lambda condition, seconds=None: condition(), require_alive=lambda *names: None,
        )  # fmt: skip
        monkeypatch.setattr(arm_module, "time", SimpleNamespace(monotonic=lambda: self.clock, time_ns=lambda: 0))
        monkeypatch.setattr(arm_module, "certified_plan_to_message", lambda *arguments: None)
        monkeypatch.setattr(arm_module, "ExecuteTrajectory", SimpleNamespace(Request=SimpleNamespace))
        self.answer_time = 0.0
        monkeypatch.setattr(arm_module, "call_service", self._answer)
        monkeypatch.setattr(arm_module, "wait_until", lambda condition, seconds: condition())
        self.arm = RosArm(session)

    def _answer(self, *_):
        self.clock += self.answer_time
        return self.answer

    def hear(self, clock, stamp, plan, done):
        """The driver says how much of a plan is done [s], by the time of the arm."""
        monitor = self.monitor
        self.clock = monitor.status_time = monitor.sample_time = clock
        monitor.sample_stamp_ns = round(1e9 * stamp)
        monitor.status.mode, monitor.status.progress = DriverStatus.MODE_TRACK, done / DURATION
        monitor.status.plan_id = plan.plan_id
        monitor.followed[plan.plan_id] = PlanProgress(monitor.sample_stamp_ns, done / DURATION)

    def time_left(self, plan):
        return plan.handover_time - 1e-9 * (self.arm.now_ns() - self.arm.begin_ns(plan))


@pytest.fixture
def bench(robot, monkeypatch):
    return Bench(robot, monkeypatch)


def test_time_until_a_takeover_is_that_of_the_arm(bench, robot):
    first = make_plan(robot)
    second = make_plan(robot, first, 0.2)
    assert bench.arm.begin_ns(first) is None and not bench.arm.has_begun(first)
    bench.arm.execute(first)
    assert bench.time_left(first) == pytest.approx(1.5)  # nothing was heard yet
    bench.hear(100.6, 50.6, first, 0.6)
    assert bench.time_left(first) == pytest.approx(0.9)
    bench.arm.execute(second)
    assert bench.time_left(second) == pytest.approx(2.4)
    bench.hear(101.6, 50.9, first, 0.9)  # an emulated arm that waits: 0.3 s in a second
    assert bench.time_left(first) == pytest.approx(0.6)
    assert bench.time_left(second) == pytest.approx(2.1)
    bench.clock += 0.5  # since the last word of the driver
    assert bench.time_left(second) == pytest.approx(1.6)
    assert bench.arm.has_begun(first) and not bench.arm.has_begun(second)
    bench.hear(104.0, 51.8, second, 0.3)
    assert bench.time_left(second) == pytest.approx(1.2) and bench.arm.has_begun(second)


@pytest.mark.parametrize("wait", ["wait_until_ready", "wait_until_holding"])
def test_a_driver_that_goes_while_it_takes_the_arm_over_is_not_waited_for(bench, robot, wait):
    """It says nothing more, and its last word was that it is not done."""
    bench.monitor.status.is_taking_over = True
    bench.monitor.peers = SimpleNamespace(is_gone=lambda name: False)
    gone = IdentificationFailed(IdentificationErrorCode.INTERRUPTED, "the node arm_driver has gone")

    def require_alive(*names):
        assert {"arm_driver", "safe_planner", "estimator"} == set(names)
        raise gone

    bench.arm._session.require_alive = require_alive
    arguments = [] if wait == "wait_until_ready" else [PayloadModel.prior(robot)]
    with pytest.raises(IdentificationFailed, match="arm_driver has gone") as failure:
        getattr(bench.arm, wait)(*arguments)
    assert failure.value is gone


def test_plans_are_wanted_earlier_where_the_driver_takes_long_to_prove_them(bench, robot):
    assert bench.arm.check_time == pytest.approx(TAKEOVER_RESERVE + EXPECTED_CHECK_TIME)
    bench.answer_time = 0.2
    bench.arm.execute(make_plan(robot))
    assert bench.arm.check_time - TAKEOVER_RESERVE == pytest.approx(0.26)
    bench.answer_time = 0.5
    bench.arm.execute(make_plan(robot, None, 0.2))
    assert bench.arm.check_time - TAKEOVER_RESERVE == pytest.approx(0.65)


def test_begins_are_by_the_clock_of_samples(bench, robot):
    """So the share of a plan's information that an estimate has seen is known from its stamp."""
    first = make_plan(robot)
    second = make_plan(robot, first, 0.2)
    bench.arm.execute(first)
    assert bench.arm.begin_ns(first) == round(50e9)
    bench.hear(100.6, 50.7, first, 0.6)  # it began later than it was accepted
    bench.arm.execute(second)
    assert 1e-9 * bench.arm.begin_ns(first) == pytest.approx(50.1)
    assert 1e-9 * bench.arm.begin_ns(second) == pytest.approx(51.6)
    bench.hear(102.0, 52.0, second, 0.3)  # of the first, which is over, only this is known now
    assert 1e-9 * bench.arm.begin_ns(first) == pytest.approx(50.2)
    stamps = [1e-9 * stamp for stamp, _ in bench.monitor.records.plans]
    assert stamps == pytest.approx([50.0, 51.6])


def test_a_chain_that_begins_again_with_the_same_plan_is_not_taken_for_the_last_one(bench, robot):
    first = make_plan(robot)
    bench.arm.execute(first)
    bench.hear(103.0, 53.0, first, 2.9)
    again = make_plan(robot)
    assert again.plan_id == first.plan_id
    bench.monitor.status.plan_id = ""
    bench.arm.execute(again)
    assert not bench.arm.has_begun(again) and bench.arm.begin_ns(again) == round(53e9)


def refusal(code, message):
    return SimpleNamespace(accepted=False, code=code, message=message, proof_time=0.4)


def test_a_plan_whose_acceptance_got_lost_counts_where_the_driver_says_that_it_has_it(bench, robot):
    first = make_plan(robot)
    second, third = make_plan(robot, first, 0.2), make_plan(robot, first, 0.3)
    bench.arm.execute(first)
    bench.answer = refusal(RefusalCode.REPLAYED, "its certificate has been used")
    bench.monitor.status.next_plan_id = second.plan_id
    bench.arm.execute(second)
    assert [plan for _, plan in bench.monitor.records.plans] == [first, second]
    with pytest.raises(SysidError, match="has been used"):
        bench.arm.execute(third)
    bench.answer = refusal(RefusalCode.TOO_LATE, "it comes too late")
    with pytest.raises(SysidError, match="too late"):
        bench.arm.execute(second)


def test_a_plan_that_is_refused_never_begins(bench, robot):
    first = make_plan(robot)
    second = make_plan(robot, first, 0.2)
    bench.arm.execute(first)
    bench.answer = refusal(RefusalCode.TOO_LATE, "it comes too late")
    with pytest.raises(SysidError, match="too late"):
        bench.arm.execute(second)
    assert bench.arm.begin_ns(second) is None and len(bench.monitor.records.plans) == 1


def test_an_arm_that_was_just_started_moves_until_the_driver_had_time_to_say_so(bench, robot):
    bench.arm.execute(make_plan(robot))
    bench.clock += 0.5 * START_TIMEOUT
    assert bench.arm.motion_state().is_moving
    bench.clock += START_TIMEOUT
    bench.monitor.status_time = bench.clock  # an arm whose time has passed more slowly
    bench.monitor.status.header.stamp = stamp_to_message(round(1e9 * (50.0 + 0.9 * START_TIMEOUT)))
    assert bench.arm.motion_state().is_moving
    bench.monitor.status.header.stamp = stamp_to_message(round(1e9 * (50.0 + 1.1 * START_TIMEOUT)))
    state = bench.arm.motion_state()
    assert not state.is_moving and not state.has_failed and state.progress == 1.0


def test_waits_last_as_long_by_the_time_of_the_arm(bench):
    """At 0.4 of real time, two seconds of weighing take five."""

    def sleep(duration, *needed):
        bench.clock += duration
        bench.monitor.sample_time = bench.clock
        bench.monitor.sample_stamp_ns += round(0.4e9 * duration)

    bench.session.sleep = sleep
    bench.arm.wait(2.0)
    assert bench.monitor.sample_stamp_ns == pytest.approx(52e9, abs=0.03e9)
    assert bench.clock == pytest.approx(105.0, abs=0.1)
    bench.session.sleep = lambda duration, *needed: setattr(bench, "clock", bench.clock + duration)
    bench.arm.wait(2.0)  # samples have ended: others find out
    assert bench.clock == pytest.approx(107.0, abs=0.1)


def test_motion_time_is_what_the_driver_said_of_each_plan(bench, robot):
    first = make_plan(robot)
    second = make_plan(robot, first, 0.2)
    bench.arm.execute(first)
    assert bench.arm.motion_time == 0.0
    bench.hear(100.6, 50.6, first, 0.6)
    bench.arm.execute(second)
    assert bench.arm.motion_time == pytest.approx(0.6)
    bench.hear(102.0, 52.0, second, 0.4)
    assert bench.arm.motion_time == pytest.approx(HANDOVER + 0.4)
    status = bench.monitor.status
    status.plan_id, status.mode = "", DriverStatus.MODE_HOLD
    assert bench.arm.motion_time == pytest.approx(HANDOVER + DURATION)  # at rest as planned
    status.code = DriverStatus.CODE_BRAKE_REQUESTED
    assert bench.arm.motion_time == pytest.approx(HANDOVER + 0.4)  # and where it was braked


def test_motion_time_counts_plans_that_the_monitor_has_forgotten(bench, robot):
    plan, plans = None, []
    for number in range(3):
        plan = make_plan(robot, plan, 0.1 * number)
        bench.arm.execute(plan)
        bench.hear(101.0 + number, 51.0 + number, plan, 1.0)
        plans.append(plan)
    bench.monitor.followed.pop(plans[0].plan_id)
    assert bench.arm.motion_time == pytest.approx(2 * HANDOVER + 1.0)
    again = make_plan(robot, None, 0.5)  # from rest
    bench.arm.execute(again)
    bench.hear(110.0, 60.0, again, 0.2)
    assert bench.arm.motion_time == pytest.approx(2 * HANDOVER + DURATION + 0.2)


def test_only_what_this_goal_moves_is_braked_and_a_stop_must_be_confirmed(bench, robot):
    bench.monitor.status.mode = DriverStatus.MODE_TRACK  # somebody else's motion
    bench.arm.brake("a test")
    assert not bench.warnings
    bench.arm.execute(make_plan(robot))
    with pytest.raises(StopUnconfirmed, match=f"within {BRAKE_TIMEOUT:g} s"):
        bench.arm.brake("a test")
    bench.monitor.status.mode, bench.monitor.status_time = DriverStatus.MODE_HOLD, bench.clock + 0.1
    bench.arm.brake("a test")


def test_which_model_the_controller_has_is_what_the_driver_says_from_now_on(bench, robot):
    """Statuses that were on their way are older than an answer of the driver, as to another payload in the hand."""
    model, monitor = PayloadModel.prior(robot), bench.monitor
    mine = box_hash(robot.theta_box, model.box)
    news = [mine, "another"]  # the one that waits behind the status heard last, then the first that is new
    monitor.status.model_box_hash = mine

    def wait_until(condition, seconds=None):
        while not condition():
            monitor.status_time, monitor.status.model_box_hash = monitor.status_time + 0.1, news.pop(0)
        return True

    bench.arm._session.wait_until = wait_until
    assert not bench.arm.has_model(model) and not news
    news += [mine, mine]
    assert bench.arm.has_model(model)


@pytest.mark.parametrize(("mine_after", "is_held"), [(1.0, True), (100.0, False)])
def test_a_model_that_somebody_else_has_replaced_is_not_waited_for_long(bench, robot, mine_after, is_held):
    """The driver tells its status ten times a second; what it was given last shows late, or never."""
    model, monitor = PayloadModel.prior(robot), bench.monitor
    began, monitor.status.model_box_hash = monitor.status_time, "another"

    def wait_until(condition, seconds=None):
        end = monitor.status_time + (seconds or 60.0)
        while not condition() and monitor.status_time < end:
            monitor.status_time += 0.1
            if monitor.status_time - began > mine_after:
                monitor.status.model_box_hash = box_hash(robot.theta_box, model.box)
        return condition()

    bench.arm._session.wait_until = wait_until
    if is_held:
        bench.arm.wait_until_holding(model)
    else:
        with pytest.raises(IdentificationFailed, match="held with another model"):
            bench.arm.wait_until_holding(model)
    assert monitor.status_time - began < 4.0


def test_what_procedure_and_lock_step_assume_of_the_nodes():
    assert LockstepSettings().check_time == pytest.approx(TAKEOVER_RESERVE + EXPECTED_CHECK_TIME)
    assert LockstepSettings().estimate_period == 1.0 / EstimatorParameters().publish_rate


def test_a_machine_that_is_too_slow_is_told_once():
    """While the arm moves; where it rests the text ends the goal, and is told in full."""
    status = PlanStatus(failure=int(PlanFailureCode.NO_TIME))
    response = PlanNext.Response(success=False, message="this machine is too slow", status=status)
    session = SimpleNamespace(
        call=lambda *given: response, clients=SimpleNamespace(plan_next=None),
        options=SimpleNamespace(service_timeout=1.0),
        monitor=SimpleNamespace(records=SimpleNamespace(timing={}), estimate=None),
    )  # fmt: skip
    planner, told = RosPlanner(session), []
    for is_moving in (True, True, False, True):
        with pytest.raises(IdentificationFailed) as found:
            planner._ask(PlanNext.Request(), is_moving)
        told.append(str(found.value))
    assert told == ["this machine is too slow", "again no plan in time"] * 2
    response.status.failure = int(PlanFailureCode.LIMIT)
    with pytest.raises(IdentificationFailed, match="too slow"):  # another reason is told whenever there is one
        planner._ask(PlanNext.Request(), True)


def test_samples_of_the_payload_that_a_reset_begins_are_waited_for_and_not_those_of_an_earlier_change(bench):
    """The payload was announced to have changed just before: the estimator would begin once more, without the goal."""
    heard = iter([7, 8, 8, 9])  # 8: the change, 9: the reset
    bench.monitor.sample_epoch = 7

    def wait_until(condition, seconds=None):
        for bench.monitor.sample_epoch in heard:
            if condition():
                return True
        return False

    bench.session.wait_until = wait_until
    bench.session.clients.set_model = "set"
    bench.session.call = lambda *_, **__: SimpleNamespace(success=True, message="", payload_epoch=9)
    bench.arm.set_model(None, is_reset=True)
    assert bench.monitor.sample_epoch == 9 and next(heard, None) is None
