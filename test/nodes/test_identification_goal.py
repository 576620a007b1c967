"""One goal without a suite: its fields, folder and files, and what it says when the driver is silent or strange."""

import re
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from doubles import make_estimate, text_of
from geometry_msgs.msg import InertiaStamped
from node_bench import PATIENCE, Bench
from suite_bench import GoalProbe

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, SampleBatch
from sysid_msgs.srv import ExecuteTrajectory
from sysid_ros.adapters import goals as server_module
from sysid_ros.adapters.goals import FEEDBACK_PERIOD, GoalServer, NewsFilter, prepare_folder
from sysid_ros.adapters.identification import arm as arm_module
from sysid_ros.adapters.identification import goals as goals_module
from sysid_ros.adapters.identification.arm_goal import ArmGoalRun
from sysid_ros.adapters.identification.goals import GoalBase, settings_of
from sysid_ros.adapters.identification.monitor import Records, find_timing_doubt
from sysid_ros.adapters.identification.results import build_result, payload_message
from sysid_ros.cli.terminal import result_summary
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.core.procedure import (
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Progress,
)
from sysid_ros.drivers.loop_types import RefusalCode
from sysid_ros.nodes.identification import IdentificationNode
from sysid_ros.reports.payload import notices
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.samples import Samples
from sysid_ros.ros.other_nodes import wait_until

Result = Identify.Result


@pytest.fixture(scope="module")
def bench():
    bench = Bench("-p", "identification:service_timeout:=0.5")
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def node(bench):
    return bench.run(IdentificationNode())


@pytest.fixture(scope="module")
def goals(bench, node):
    return GoalProbe(bench)


class StrangeDriver:
    """Says that it holds the arm, and sends what the test wants as samples."""

    def __init__(self, bench):
        self.batch, self._bench = None, bench
        self.status = DriverStatus(mode=DriverStatus.MODE_HOLD, text="holding")
        self._status = bench.node.create_publisher(DriverStatus, "arm_driver/status", qos.STATUS)
        self._samples = bench.node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
        self.start()

    def start(self):
        self._timer = self._bench.node.create_timer(0.1, self._publish)

    def stop(self):
        """Falls silent."""
        node = self._bench.node
        self._bench.between_turns(node, lambda: node.destroy_timer(self._timer))

    def end(self):
        """Is no driver any more: another one may speak."""
        self.stop()
        for publisher in (self._status, self._samples):
            self._bench.between_turns(self._bench.node, partial(self._bench.node.destroy_publisher, publisher))

    def _publish(self):
        self._status.publish(self.status)
        if self.batch is not None:
            self._samples.publish(self.batch)


def test_feedback_comes_when_there_is_news_or_once_a_second():
    now, news = [0.0], NewsFilter(lambda: now[0])
    moving = Progress(Phase.MOVING, "moving", 0.1, 1, 4, None)
    assert news.is_news(moving) and not news.is_news(replace(moving, progress=0.2))
    assert news.is_news(replace(moving, trajectory=2)) and news.is_news(replace(moving, text="another plan"))
    now[0] = FEEDBACK_PERIOD
    assert news.is_news(replace(moving, text="another plan"))


def test_error_codes_of_core_and_action_are_the_same():
    for code in IdentificationErrorCode:
        assert getattr(Result, code.name) == code


def test_refusals_of_driver_and_service_have_the_same_numbers():
    for code in RefusalCode:
        assert getattr(ExecuteTrajectory.Response, code.name) == code


def test_fields_of_a_goal_replace_the_parameters_of_the_node():
    settings = IdentificationSettings(trajectories=3, trajectory_duration=5.0, max_motion_time=20.0)
    assert settings_of(settings, Identify.Goal()) == settings
    goal = Identify.Goal(max_motion_time=12.0, target_mass_width=0.1, number_of_trajectories=2)
    changed = settings_of(settings, goal)
    assert (changed.max_motion_time, changed.target_mass_width, changed.trajectories) == (12.0, 0.1, 2)
    assert changed.trajectory_duration == 5.0
    short = settings_of(settings, Identify.Goal(max_motion_time=3.0))
    assert (short.max_motion_time, short.trajectory_duration) == (3.0, 3.0)
    for bad in ({"max_motion_time": np.inf}, {"max_motion_time": 0.5}, {"target_mass_width": -1.0}):
        with pytest.raises(ParameterOutOfRange):
            settings_of(settings, Identify.Goal(**bad))


def test_folder_must_be_usable_and_fresh(tmp_path):
    assert prepare_folder(tmp_path / "a" / "b").is_dir()
    assert prepare_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"  # empty ones may exist
    (tmp_path / "file").write_text("")
    with pytest.raises(SysidError, match="cannot be used: Not a directory"):
        prepare_folder(tmp_path / "file" / "a")
    with pytest.raises(SysidError, match="cannot be used"):
        prepare_folder(tmp_path.__class__("/proc/results"))
    (tmp_path / "recording.mcap").write_text("")
    with pytest.raises(SysidError, match=r"holds the recording\.mcap of an earlier goal; give another folder"):
        prepare_folder(tmp_path)


def test_silent_and_strange_drivers_are_named(bench, goals, node, robot, monkeypatch):
    """Runs before the driver's status can be heard, then with samples that are missing and that do not fit."""
    result = goals.send().wait()
    assert result.error_code == Result.DRIVER_NOT_READY
    assert result.error_text.startswith(
        "no driver status on topic /arm_driver/status within 0.5 s with QoS reliable, transient local, keep last 1; "
        "publishers seen: none"
    )
    assert "Watch the arm" not in result.error_text  # nothing was moved
    driver, watch = StrangeDriver(bench), node._suite.monitor
    assert wait_until(lambda: watch.status is not None, PATIENCE)
    result = goals.send().wait()
    assert result.error_code == Result.NO_SAMPLES
    assert "no samples on topic /arm_driver/samples within 0.5 s with QoS reliable, volatile" in result.error_text
    assert "publishers seen: /tester (reliable, volatile)" in result.error_text
    driver.batch = SampleBatch(joint_names=["elbow"], stamps=[1])
    assert wait_until(lambda: "elbow" in (watch.sample_fault or ""), PATIENCE)
    result = goals.send().wait()
    assert result.error_code == Result.NO_SAMPLES and "the unknown joint 'elbow'" in result.error_text
    driver.status = DriverStatus(mode=DriverStatus.MODE_FAULT, text="the brakes hold")
    assert wait_until(lambda: watch.status.mode == DriverStatus.MODE_FAULT, PATIENCE)
    result = goals.send().wait()
    assert result.error_code == Result.DRIVER_NOT_READY
    assert "the arm has a fault: the driver reports 'the brakes hold'; remove the cause" in result.error_text
    driver.status = DriverStatus(mode=DriverStatus.MODE_HOLD, serial_number="K8")
    record = CalibrationRecord(serial="K7", date="2026-11-28")
    monkeypatch.setattr(
        node, "_suite", replace(node._suite, robot=replace(robot, calibration=SimpleNamespace(record=record)))
    )
    assert wait_until(lambda: watch.status.serial_number == "K8", PATIENCE)
    result = goals.send().wait()
    assert result.error_code == Result.DRIVER_NOT_READY
    assert "serial number of the arm 'K8': expected K7" in result.error_text
    driver.end()


def test_a_driver_that_takes_the_arm_over_is_waited_for_although_it_says_nothing(bench, goals, node, monkeypatch):
    silence = 0.3
    monkeypatch.setattr(arm_module, "STATUS_TIMEOUT", silence)
    driver, watch = StrangeDriver(bench), node._suite.monitor
    driver.status = DriverStatus(is_taking_over=True, text="the arm is taken over")
    assert wait_until(lambda: watch.status is not None and watch.status.is_taking_over, PATIENCE)
    driver.stop()
    assert wait_until(lambda: time.monotonic() - watch.status_time > 2.0 * silence, PATIENCE)
    goal = goals.send()
    time.sleep(2.0)  # longer than any other driver is waited for here
    driver.status = DriverStatus(mode=DriverStatus.MODE_FAULT, text="the arm cannot be taken over: nobody answers")
    driver.start()
    result = goal.wait()
    driver.end()
    assert result.error_code == Result.DRIVER_NOT_READY
    assert "the driver reports 'the arm cannot be taken over: nobody answers'" in result.error_text


@pytest.mark.parametrize(
    ("timing", "is_simulated", "doubt"),
    [
        (DriverStatus.TIMING_TOPICS, True, "over ros2_control"),
        (DriverStatus.TIMING_NO_PRIORITY, False, "the driver of the arm had no real-time scheduling"),
        (DriverStatus.TIMING_UNKNOWN, False, "the driver of the arm had no real-time scheduling"),
        (DriverStatus.TIMING_REAL_TIME, False, None),
        (DriverStatus.TIMING_NO_PRIORITY, True, None),
    ],
)
def test_a_result_says_where_the_timing_of_its_motions_was_not_ensured(robot, outcome, timing, is_simulated, doubt):
    found = find_timing_doubt(
        DriverStatus(mode=DriverStatus.MODE_TRACK, timing=timing, is_simulated=is_simulated, text="following a")
    )
    held = DriverStatus(mode=DriverStatus.MODE_HOLD, timing=timing, is_simulated=is_simulated)
    assert find_timing_doubt(held) is None
    assert found is doubt is None or doubt in found
    part = Samples(
        np.arange(1, 3), np.arange(1, 3), *np.zeros((7, 2, robot.n)), np.ones(2, bool), np.zeros(2, np.uint8), 0, 0
    )
    records = Records(samples=[part], estimates=[(2, outcome.estimate)], timing_doubt=found)
    result = build_result(robot, outcome, records, IdentificationSettings())
    told = "torques act within one period" in " ".join(text_of(result_summary(result)).split())
    assert told == bool(doubt) and (found in notices(result)) == bool(doubt)


@pytest.fixture
def outcome(robot):
    box = robot.payload_prior.box
    nominal = robot.payload_prior.nominal
    estimate = make_estimate(nominal, box.lower, box.upper, narrower=frozenset(Quantity))
    return Identification((), 3.0, "a test", estimate)


def test_missing_files_are_no_success_but_keep_the_estimate(goals, outcome, monkeypatch, tmp_path):
    def fail(*_):
        raise SysidError("cannot write estimate.yaml: No space left on device")

    monkeypatch.setattr(goals_module, "run_identification", lambda *_: outcome)
    monkeypatch.setattr(goals_module, "write_files", fail)
    result = goals.send(results_directory=str(tmp_path)).wait()
    assert result.error_code == Result.RESULTS_NOT_WRITTEN
    assert "cannot write estimate.yaml: No space left on device. The estimate" in result.error_text
    np.testing.assert_array_equal(result.estimate.values, outcome.estimate.values)
    assert result.motion_time == 3.0 and result.results_directory == str(tmp_path)
    assert (tmp_path / "recording.mcap").is_file()


def test_the_payload_for_others_is_the_estimate_in_the_tool_frame(robot, outcome):
    estimate = outcome.estimate
    message = payload_message(robot, estimate, 1_500_000_000, "left/")
    assert (message.header.frame_id, message.header.stamp.sec) == (f"left/{robot.tool_frame}", 1)
    rotation, origin = tool_transform(robot)
    com = rotation @ [message.inertia.com.x, message.inertia.com.y, message.inertia.com.z] + origin
    assert estimate.lower[0] < message.inertia.m < estimate.upper[0]
    first = message.inertia.m * com
    assert np.all((estimate.lower[1:4] <= first) & (first <= estimate.upper[1:4]))
    unknown = replace(estimate, narrower=frozenset({Quantity.MASS, Quantity.COM}))
    assert payload_message(robot, unknown, 0, "") is None


def test_own_folder_gets_one_folder_per_goal(bench, goals, outcome, monkeypatch, tmp_path):
    monkeypatch.setattr(goals_module, "run_identification", lambda *_: outcome)
    monkeypatch.setattr(goals_module, "write_files", lambda *_: ())
    assert not bench.set_parameter("identification", results_directory=str(tmp_path), record=False)
    refusal = bench.set_parameter("identification", results_directory="/usr/../etc")
    assert "results_directory '/usr/../etc': expected a folder below" in refusal
    heard = bench.listen(InertiaStamped, "identification/payload", qos.LATCHED)
    folders = {goals.send().wait().results_directory for _ in range(2)}
    assert heard.wait().inertia.m > 0.0
    stamp = rf"{tmp_path}/\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d"
    assert len(folders) == 2 and all(re.match(stamp, folder) for folder in folders)
    assert not list(tmp_path.rglob("recording.mcap"))
    assert not bench.set_parameter("identification", results_directory="", record=True)


def test_whatever_breaks_is_an_answer(goals, monkeypatch):
    monkeypatch.setattr(goals_module, "run_identification", lambda *_: 1 / 0)
    result = goals.send().wait()
    assert result.error_code == Result.INTERNAL and "ZeroDivisionError" in result.error_text


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("gripper", "closed", "the gripper in state 'closed'"), ("stated_mass", 1.0, "a payload of 1 kg")],
)
def test_an_estimate_that_counts_on_what_no_goal_has_stated_ends_it(
    goals, node, outcome, monkeypatch, field, value, said
):
    monitor = node._suite.monitor

    def identify(ports, *_):
        monitor.forget_estimates(0)
        message = estimate_to_message(outcome.estimate, 5)
        setattr(message, field, value)
        monitor._take_estimate(message)
        assert monitor.estimate is None
        monitor.sample_stamp_ns = 10
        ports.estimates.catch_up()

    monkeypatch.setattr(goals_module, "run_identification", identify)
    result = goals.send().wait()
    assert result.error_code == Result.INTERRUPTED
    assert f"counts on {said}, which no goal has stated" in result.error_text


def test_the_end_of_the_node_ends_the_goal_first(bench, goals, node, monkeypatch):
    """Runs last: the node does not take goals any more."""

    def wait(ports, policy, settings, is_cancelled, on_progress):
        end = time.monotonic() + PATIENCE
        while not is_cancelled() and time.monotonic() < end:
            time.sleep(0.02)
        raise IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")

    monkeypatch.setattr(goals_module, "run_identification", wait)
    goal = goals.send()
    bench.end(node)
    assert goal.wait().error_code == Result.INTERRUPTED


def test_a_long_phase_says_that_it_lives(monkeypatch):
    """In the log and to the client; again and again, and only while nothing else is told."""
    now, said, told = [0.0], [], []
    monkeypatch.setattr(server_module.time, "monotonic", lambda: now[0])
    server = GoalServer(SimpleNamespace(get_logger=lambda: SimpleNamespace(info=said.append)))
    report = server._reporter(told.append)
    planning = Progress(Phase.PLANNING, "looking for a motion", 0.1, 1, 3, None)
    report(planning)
    for k in range(1, 130):
        now[0] = 0.1 * k
        server.say_alive()
    assert said == [planning.text, f"{planning.text}: for 5 s now", f"{planning.text}: for 10 s now"]
    assert told == 3 * [planning]
    now[0] = 16.0
    report(replace(planning, text="moving", phase=Phase.MOVING))
    server.say_alive()
    assert len(told) == 4 and len(said) == 3
    now[0] = 22.0
    server.say_alive()
    assert told[-1].text == "moving" and len(told) == 5 and len(said) == 3
    server._told = None
    now[0] = 60.0
    server.say_alive()
    assert len(told) == 5


class QuickGoal(GoalBase):
    """Ends with the estimate that its fields are; the controller has a model then."""

    model = "new"

    def _prepare(self):
        self._monitor.estimate = self._goal

    def _carry_out(self):
        return Result()


@pytest.mark.parametrize("is_consistent", [None, True, False])
def test_the_next_move_assumes_no_model_after_inconsistent_data_or_a_known_load(is_consistent):
    estimate = None if is_consistent is None else SimpleNamespace(is_consistent=is_consistent)
    monitor = SimpleNamespace(begin=lambda recorder: None, end=lambda final: None, known_model="old")
    node = SimpleNamespace(get_logger=lambda: None)
    suite = SimpleNamespace(node=node, robot=None, monitor=monitor, clients=None, key=None)
    goal = QuickGoal(suite, SimpleNamespace(is_moved_by_others=False), estimate, lambda: False)
    assert goal.run(lambda progress: None).error_code == Result.NONE
    assert monitor.known_model == (None if is_consistent is False else "new")
    assert ArmGoalRun.model is GoalBase.model and GoalBase.model.fget(goal) is None
