"""The whole suite as separate processes in a namespace: goals, cancelling, wrong goals, alarms, killed nodes."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from node_bench import PATIENCE, Bench, DriverProbe
from policy_rules import read_policy, used_by
from std_srvs.srv import Trigger
from suite_bench import GoalProbe, SuiteOfProcesses, send_goal
from textbook import textbook_file

from sysid_msgs.action import Identify, MoveTo
from sysid_msgs.msg import DriverStatus, ParameterEstimate
from sysid_msgs.srv import SetPayload
from sysid_ros.core.certification.certificate import box_hash
from sysid_ros.core.model.inertia import is_physically_consistent
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.reports.recordings.mcap import read_messages, read_metadata
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import inertia_from_message
from sysid_ros.ros.other_nodes import ServerProbe, wait_until

HOLD, TRACK = DriverStatus.MODE_HOLD, DriverStatus.MODE_TRACK
NAMESPACE = "left"
READY = {"estimator": "estimating the payload", "safe_planner": "plans are proven", "identification": "send a goal"}
"""What these nodes say when they are."""
Feedback, Result = Identify.Feedback, Identify.Result
PATIENT = 3.0
"""How long the driver waits for a heartbeat of the commander on a machine that may be busy [s]."""
NAMED_WITHIN = 25.0
"""How long a goal may take to name a node that has gone, on a machine that may be busy [s]."""
SHORT = {"max_motion_time": 3.0, "number_of_trajectories": 1}
"""A goal with one plan of 3 s."""
AWAY = 0.02
"""An arm that rests this far from home was stopped on its way [rad]."""
ROUNDING = 1e-9
"""What a change of the point of reference there and back may cost [units of the parameters]."""
PARAMETERS = {
    "arm_driver": {
        "payload": "dumbbell_4lb",
        "truth": "corner",
        "gripper": "closed",
        "seed": 3,
        "commander_timeout": PATIENT,
        "heartbeat_timeout": 10.0,
        "late_limit": 10.0,
    },  # fmt: skip
    "excitation_planner": {"time_budget": 0.5, "starts": 1, "max_iterations": 5},
    "estimator": {"publish_rate": 10.0},
    "identification": {"weighing_time": 0.3, "trajectories": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def suite(folder):
    suite = SuiteOfProcesses(folder / "log", PARAMETERS, NAMESPACE)
    yield suite
    suite.stop()


@pytest.fixture(scope="module")
def bench(suite):
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def driver(bench, robot):
    probe = DriverProbe(bench, robot, f"{NAMESPACE}/")
    probe.is_alive = False  # identification gives the signs of life
    return probe


@pytest.fixture(scope="module")
def probe(bench, driver):
    return GoalProbe(bench, f"{NAMESPACE}/")


@pytest.fixture
def goals(probe, suite):
    """What a failed test leaves running ends with it."""
    yield probe
    probe.end(is_answered=suite.groups["identification"].returncode is None)


@pytest.fixture(autouse=True)
def _whole_suite(suite, bench, driver, robot):
    """What an earlier test has killed runs again, the arm's driver excepted, which the last one kills; and the arm is
    at home, for where it was stopped on its way it may not even be held with any payload of the prior."""
    for name, ready in READY.items():
        if suite.groups[name].returncode is not None:
            suite.restart(name, ready)
    if suite.groups["arm_driver"].returncode is None:
        status = driver.wait_for(HOLD)
        if np.abs(np.array(status.reference_position) - robot.home).max() > AWAY:
            begin_anew(bench, driver)


def begin_anew(bench, driver):
    """Ends the simulation and begins another one: at home, with what the hand held in the beginning."""
    name = f"{NAMESPACE}/arm_driver"
    assert bench.change_state(name, "deactivate")
    assert bench.change_state(name, "activate")
    driver.wait_for(HOLD)


@pytest.fixture
def exchange(bench, driver, robot):
    """Changes what the hand holds, for the time of a test."""
    held = ["dumbbell_4lb"]

    def change(name, announce=False):
        request = SetPayload.Request(operation=SetPayload.Request.DETACH, announce=announce)
        if name:
            request.operation = SetPayload.Request.CHANGE if held[-1] else SetPayload.Request.ATTACH
            request.payload = load_payload(robot, name)
        assert bench.call(SetPayload, f"{NAMESPACE}/arm_driver/set_payload", request).success
        held.append(name)

    yield change
    if held[-1] != held[0]:
        begin_anew(bench, driver)


def test_a_goal_identifies_the_payload(goals, driver, robot, folder):
    truth = load_payload(robot, "dumbbell_4lb")
    goal = goals.send(results_directory=str(folder / "first"), gripper="closed", **SHORT)
    result = goal.wait()
    assert result.error_code == Result.NONE, result.error_text
    estimate = result.estimate
    assert estimate.is_consistent and np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper)
    assert estimate.lower[0] > 0.0 and estimate.upper[0] < robot.payload_prior.box.upper[0]
    assert np.all(estimate.lower <= estimate.values) and np.all(estimate.values <= estimate.upper)
    found = result.payload
    body = inertia_from_message(found)
    assert is_physically_consistent(body)
    assert np.all(estimate.lower - ROUNDING <= body) and np.all(body <= estimate.upper + ROUNDING)
    stored = yaml.safe_load((folder / "first" / "estimate.yaml").read_text())["payload"]["at_last_joint"]
    assert found.m == pytest.approx(stored["mass_kg"]["value"]) and result.motion_time == 3.0
    names = {path.name for path in (folder / "first").iterdir()}
    assert {"estimate.yaml", "report.html", "recording.mcap", "robot_with_payload.urdf"} <= names
    topics = {message.topic for message in read_messages(folder / "first" / "recording.mcap")}
    assert {"/tf", "/tf_static"} <= topics, "transforms have no namespace"
    wanted = [
        "robot_description",
        "safe_planner/scene",
        "monitor/markers",
        "monitor/plan_markers",
        "monitor/scene_markers",
    ]
    for name in wanted:
        assert any(topic.endswith(f"/{name}") for topic in topics), (name, topics)
    assert result.results_directory == str(folder / "first")
    assert estimate.gripper == read_metadata(folder / "first" / "recording.mcap")["gripper"] == "closed"
    assert yaml.safe_load((folder / "first" / "estimate.yaml").read_text())["settings"]["gripper"] == "closed"

    names = {getattr(Feedback, name): name[6:] for name in dir(Feedback) if name.startswith("PHASE_")}
    phases = [names[phase] for k, phase in enumerate(goal.phases) if k == 0 or phase != goal.phases[k - 1]]
    assert phases == "WAITING ESTIMATING PLANNING MOVING ESTIMATING REPORTING".split()
    progress = [feedback.progress for feedback in goal.feedback]
    assert progress == sorted(progress) and progress[0] == 0.0 and progress[-1] == 1.0
    assert all(feedback.text for feedback in goal.feedback)
    motion = [feedback.motion_time for feedback in goal.feedback]
    assert motion == sorted(motion)
    # The way back counts too, and is told where it takes long.
    assert [feedback.motion_time for feedback in goal.feedback if "returning" not in feedback.text][-1] == 3.0
    # The controller has the identified payload from now on, and the arm is where it was.
    status = driver.wait_for_rest()
    assert status.model_box_hash != box_hash(robot.theta_box, robot.payload_prior.box)
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.0101)


def test_a_tare_with_the_empty_hand_makes_bounds_narrower(goals, bench, driver, robot, folder, exchange):
    truth = load_payload(robot, "dumbbell_4lb")
    held = goals.send("tare", gripper="closed").wait()
    assert held.error_code == Result.INCONSISTENT and not held.tare
    assert "the hand does not hold the stated load (empty hand): m of its load is within" in held.error_text
    driver.wait_for_rest()
    exchange("", announce=True)
    start = driver.wait_for_rest().reference_position
    tare = goals.send("tare", gripper="closed", results_directory=str(folder / "tare")).wait()
    assert tare.error_code == Result.NONE, tare.error_text
    assert re.match(r"tare of \d+\.\d s, gripper closed, \d+ % of the allowed errors used", tare.tare), tare.tare
    assert read_metadata(folder / "tare" / "recording.mcap")["load"] == "empty hand"
    status = driver.wait_for_rest()  # where any payload may be held, by a controller that is ready for any
    np.testing.assert_allclose(status.reference_position, start, atol=0.0101)
    assert status.model_box_hash == box_hash(robot.theta_box, robot.payload_prior.box)
    exchange("dumbbell_4lb", announce=True)
    found = goals.send(gripper="closed", **SHORT).wait()
    assert found.error_code == Result.NONE and found.tare == tare.tare, found.error_text
    estimate = found.estimate
    assert np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper)
    start = driver.wait_for_rest().reference_position
    weighed = goals.send("weigh", gripper="closed", max_motion_time=8.0).wait()
    assert weighed.error_code == Result.NONE and weighed.tare == tare.tare, weighed.error_text
    assert np.all(weighed.estimate.lower <= truth) and np.all(truth <= weighed.estimate.upper)
    assert weighed.motion_time == pytest.approx(8.0)  # there and back, in four motions
    np.testing.assert_allclose(driver.wait_for_rest().reference_position, start, atol=0.0101)
    # A driver that begins anew may be of another arm: the tare is not of it.
    begin_anew(bench, driver)
    alone = goals.send(gripper="closed", **SHORT).wait()
    assert alone.error_code == Result.NONE and not alone.tare, alone.error_text
    width = [one.estimate.upper[0] - one.estimate.lower[0] for one in (found, alone)]
    assert width[0] < 0.9 * width[1], width


@pytest.fixture(scope="module")
def move_to(bench, robot):
    """Sends a goal of ``~/move_to`` and returns its result."""
    client = bench.action_client(MoveTo, f"{NAMESPACE}/identification/move_to")
    assert client.wait_for_server(PATIENCE) and wait_until(ServerProbe(client).is_answered, PATIENCE)

    def move(goal, **fields):
        goal = MoveTo.Goal(joint_names=robot.joint_names, goal_position=list(goal), **fields)
        result = send_goal(bench, client, goal).get_result_async()
        assert wait_until(result.done, 6 * PATIENCE)
        return result.result().result

    return move


def test_the_identified_payload_is_moved_to_a_goal(goals, move_to, driver, robot):
    if driver.status.latest.model_box_hash == box_hash(robot.theta_box, robot.payload_prior.box):
        assert goals.send(gripper="closed", **SHORT).wait().error_code == Result.NONE
    identified = driver.status.latest.model_box_hash
    goal = robot.home + [0.3, -0.2, 0.1, -0.2, 0.1, 0.2, -0.1]
    result = move_to(goal)
    assert result.error_code == Result.NONE, result.error_text
    status = driver.wait_for_rest()
    np.testing.assert_allclose(status.reference_position, goal, atol=0.0101)
    np.testing.assert_allclose(result.position, status.reference_position, atol=1e-9)
    assert status.model_box_hash == identified  # planned with what was identified
    assert result.plans >= 1 and 0.5 <= result.motion_time < 30.0 and 0.0 < result.smallest_torque_margin < 1.0
    refused = move_to([*goal[:3], 3.0, *goal[4:]])  # beyond the limit of joint 4
    assert refused.error_code == Result.INVALID_GOAL and refused.motion_time == 0.0
    assert "goal_position of joint_4 [rad] 3.0: expected -2.57 to 2.57" in refused.error_text, refused.error_text
    refused = move_to(goal[:6])
    assert refused.error_code == Result.INVALID_GOAL and "goal_position" in refused.error_text
    back = move_to(robot.home, tolerance=0.02)
    assert back.error_code == Result.NONE, back.error_text


def test_the_example_picks_identifies_and_places(driver, robot, exchange):
    """A program of its own, as a user starts it, with an arm whose hand is empty meanwhile."""
    exchange("", announce=True)
    words = ["--model", textbook_file(), "--seconds", "3", "--light", "3.0"]
    process = subprocess.Popen(
        [sys.executable, "examples/pick_and_place.py", *words, "--ros-args", "-r", f"__ns:=/{NAMESPACE}"],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=9 * PATIENCE)
    finally:
        process.send_signal(signal.SIGINT)  # cancels what runs, if anything does
        process.wait(PATIENCE)
    status = driver.wait_for_rest()
    assert process.returncode == 0, said
    places = [line.split(",")[0] for line in said.splitlines() if line.startswith("The arm is")]
    assert places == ["The arm is at the object", "The arm is at the light things", "The arm is home"]
    lower, upper = map(float, re.search(r"It weighs (.*) to (.*) kg", said).groups())
    assert lower <= load_payload(robot, "dumbbell_4lb")[0] <= upper
    assert "moveit_msgs) are not installed" in said or importlib.util.find_spec("moveit_msgs")
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.2)


def test_the_security_policy_allows_all_that_the_nodes_do(goals, bench, suite):
    """As the graph shows them after a goal and a move; who is refused something by SROS2 is silent."""
    rules = read_policy(f"/{NAMESPACE}")
    for name in suite.groups:
        used = used_by(bench.node, name, f"/{NAMESPACE}")
        assert len(used["publish"]) >= 3, f"the graph does not show {name}"
        missing = {right: names - rules[name][right] for right, names in used.items() if names - rules[name][right]}
        assert not missing, f"{name} does more than config/security/sysid_ros.policy.xml allows: {missing}"


def test_goals_that_cannot_be_are_refused_before_anything_moves(goals, driver, folder):
    (folder / "file").write_text("")
    full = folder / "full"
    full.mkdir()
    (full / "estimate.yaml").write_text("")
    cases = {
        "max_motion_time [s] nan": {"max_motion_time": float("nan")},
        "max_motion_time [s] -1": {"max_motion_time": -1.0},
        "a plan takes 3 s with its stop, but only 2 s of motion are allowed": {"max_motion_time": 2.0},
        "target_mass_width [kg] nan": {"target_mass_width": float("nan")},
        "trajectories [-] 101": {"number_of_trajectories": 101},
        "cannot be used": {"results_directory": str(folder / "file" / "below")},
        "gripper 'shut': expected one of open, closed": {"gripper": "shut"},
        "xxx... (1000002 characters): expected one of open": {"gripper": 1_000_000 * "x"},
        "mass of a known load nan kg: expected more than 0": {"mass": float("nan")},
        "mass of a known load 0.0 kg: expected more than 0": {"mass_tolerance": 0.1},
        "mass of the payload [kg] '9+-0.1': expected 0 to 2.5": {"mass": 9.0, "mass_tolerance": 0.1},
        "of an earlier goal; give another folder": {"results_directory": str(full)},
        "expected a folder below": {"results_directory": "../../somewhere"},
    }
    for words, fields in cases.items():
        result = goals.send(**fields).wait()
        assert result.error_code == Result.INVALID_GOAL, result.error_text
        assert words in result.error_text, result.error_text
        assert result.motion_time == 0.0
    assert driver.status.latest.mode == HOLD


def test_a_mass_from_a_scale_is_believed_within_what_data_say(goals, bench, driver, robot):
    truth = load_payload(robot, "dumbbell_4lb")
    assert "expected 0: a tare is with the empty hand" in goals.send("tare", mass=1.0).wait().error_text
    found = goals.send(mass=truth[0], mass_tolerance=0.005, **SHORT).wait()
    assert found.error_code == Result.NONE, found.error_text
    estimate = found.estimate
    assert np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper)
    assert estimate.stated_mass == truth[0] and estimate.upper[0] - estimate.lower[0] <= 0.0101
    assert "weighed: 1.81" in estimate.guarantee and "kg +- 0.005 kg" in estimate.guarantee
    wrong = goals.send(mass=0.5, mass_tolerance=0.005, **SHORT).wait()
    assert wrong.error_code == Result.INCONSISTENT, wrong.error_text
    driver.wait_for_rest()
    begin_anew(bench, driver)


def test_cancelled_while_planning_nothing_moves(goals, bench, driver, suite):
    goal = goals.send(max_motion_time=9.0, number_of_trajectories=4)
    goal.wait_for_phase(Feedback.PHASE_PLANNING)
    busy = goals.send(**SHORT).wait()
    assert busy.error_code == Result.BUSY
    assert busy.error_text == "another goal is running (planning the first motions); cancel it or wait for its end"
    trigger = bench.call(Trigger, f"{NAMESPACE}/identification/identify_payload")
    assert not trigger.success and "another goal is running" in trigger.message
    goal.cancel()
    result = goal.wait()
    assert result.error_code == Result.CANCELED and result.motion_time == 0.0, result.error_text
    assert goal.phases[-1] == Feedback.PHASE_STOPPING
    driver.wait_for_rest()


def test_cancelled_while_moving_the_arm_brakes_first(goals, bench, driver, folder):
    """That it moves shows that nothing is left of the search that the test before has cancelled."""
    goal = goals.send(max_motion_time=3.0, number_of_trajectories=1, results_directory=str(folder / "cancelled"))
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    driver.wait_for(TRACK)
    goal.cancel()
    result = goal.wait()
    # The answer comes after the arm rests. A status that came before it may be waiting beside it.
    assert bench.between_turns(bench.node, lambda: driver.status.latest.mode) == HOLD
    status = driver.wait_for_rest()
    assert result.error_code == Result.CANCELED and status.code == DriverStatus.CODE_BRAKE_REQUESTED
    assert "Watch the arm" not in result.error_text
    assert 0.0 < result.motion_time < 3.0
    assert (Path(result.results_directory) / "recording.mcap").stat().st_size > 1000


def test_the_trigger_identifies_again_after_a_cancelled_goal(bench, driver):
    response = bench.call(Trigger, f"{NAMESPACE}/identification/identify_payload", seconds=6 * PATIENCE)
    assert response.success, response.message
    words = re.match(r"mass (\S+) kg, certainly in \[(\S+), (\S+)\] kg(\. |$)", response.message)
    assert words is not None, response.message
    assert float(words[2]) < 1.814 < float(words[3])
    driver.wait_for_rest()


def test_another_payload_than_the_identified_one_ends_the_move(move_to, bench, driver, robot, exchange):
    identified = driver.wait_for(HOLD).model_box_hash
    estimates = bench.listen(ParameterEstimate, f"{NAMESPACE}/estimator/estimate", qos.LATCHED)
    exchange("")
    estimates.wait(lambda estimate: not estimate.is_consistent)  # it hangs no more
    goal = np.array(driver.wait_for(HOLD).reference_position) + [0.3, -0.2, 0.1, -0.2, 0.1, 0.2, -0.1]
    result = move_to(goal)
    assert result.error_code == Result.INCONSISTENT and result.motion_time == 0.0, result.error_text
    assert "The payload has changed" in result.error_text and "planned with the prior" in result.error_text
    assert driver.wait_for_rest().model_box_hash == identified
    # With the prior bounds are so wide that not every goal can be reached to the hundredth of a rad.
    result = move_to(robot.home, tolerance=0.2)
    assert result.error_code == Result.NONE, result.error_text
    assert driver.wait_for_rest().model_box_hash == box_hash(robot.theta_box, robot.payload_prior.box)
    # With the prior any of its payloads may be taken up between moves.
    exchange("dumbbell_4lb")
    estimates.wait(lambda estimate: not estimate.is_consistent, after=len(estimates.messages))
    result = move_to(robot.home + 0.02, tolerance=0.2)
    assert result.error_code == Result.NONE, result.error_text


def test_payload_outside_the_prior_is_an_alarm_not_a_number(goals, driver, folder, exchange):
    exchange("dumbbell_8lb")
    goal = goals.send(results_directory=str(folder / "alarm"), **SHORT)
    result = goal.wait()
    assert result.error_code == Result.INCONSISTENT, result.error_text
    assert "The payload has changed or lies outside its prior" in result.error_text
    assert np.all(np.isnan(result.estimate.values)) and result.estimate.alarm
    driver.wait_for_rest()
    written = yaml.safe_load((folder / "alarm" / "estimate.yaml").read_text())
    assert not written["is_usable"] and written["alarm"]
    names = {path.name for path in (folder / "alarm").iterdir()}
    assert names == {"estimate.yaml", "report.html", "recording.mcap"}
    exchange("dumbbell_4lb", announce=True)
    goal = goals.send(**SHORT)
    goal.wait_for_phase(Feedback.PHASE_PLANNING)  # weighed: the alarm of the last payload is over
    goal.cancel()
    assert goal.wait().error_code == Result.CANCELED


def test_killed_estimator_ends_the_goal_at_rest(goals, driver, suite):
    goal = goals.send(**SHORT)
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    suite.kill("estimator")
    result = goal.wait()
    assert result.error_code == Result.INTERRUPTED
    assert "the node estimator has gone" in result.error_text
    driver.wait_for_rest()


def test_a_planner_that_stands_still_is_named(goals, driver, suite):
    goal = goals.send(max_motion_time=12.0, number_of_trajectories=7)
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    driver.wait_for(TRACK)
    pid = suite.groups["safe_planner"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        require_named(goal, "safe_planner")
    finally:
        os.kill(pid, signal.SIGCONT)
    driver.wait_for_rest()


def test_a_planner_that_stood_still_goes_on_and_is_killed(goals, driver, suite):
    time.sleep(2.0)
    goal = goals.send(max_motion_time=12.0, number_of_trajectories=7)
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    driver.wait_for(TRACK)
    suite.kill("safe_planner")
    require_named(goal, "safe_planner")
    assert driver.wait_for_rest().code in (DriverStatus.CODE_OK, DriverStatus.CODE_BRAKE_REQUESTED)


def require_named(goal, node):
    """The goal ends soon, and says that a node has gone."""
    gone = time.monotonic()
    result = goal.wait()
    assert time.monotonic() - gone < NAMED_WITHIN
    assert result.error_code == Result.INTERRUPTED, result.error_text
    assert f"the node {node} has gone" in result.error_text


def test_plans_that_take_over_move_without_a_stop(goals, driver):
    """With a planner that was started again."""
    goal = goals.send(max_motion_time=6.0, number_of_trajectories=3)
    result = goal.wait()
    assert result.error_code == Result.NONE, result.error_text
    assert 3.0 <= result.motion_time <= 6.0
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_OK


def test_killed_identification_lets_the_driver_brake(goals, bench, driver, suite):
    for _ in range(3):  # where no second plan was found the first one ends before the silence is noticed
        begin_anew(bench, driver)
        try:
            goal = goals.send(max_motion_time=12.0, number_of_trajectories=7)
            goal.wait_for_phase(Feedback.PHASE_MOVING)
            driver.wait_for(TRACK)
            suite.kill("identification")
            status = driver.wait_for_rest()
        finally:
            begin_anew(bench, driver)
        if status.code != DriverStatus.CODE_OK:
            break
        suite.restart("identification", READY["identification"])
    assert status.code == DriverStatus.CODE_STALE and "no heartbeat of the commanding node" in status.text


def children_of(parent):
    """Numbers of the processes that a process has started."""
    stats = {int(entry.name): stat_of(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return [pid for pid, (_, above) in stats.items() if above == parent]


def stat_of(entry):
    """State and parent of a process, by its folder in /proc; X where it has ended."""
    try:
        state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def command_of(pid):
    return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()


def is_running(pid):
    return stat_of(Path("/proc", str(pid)))[0] not in "ZX"


def test_killed_driver_takes_its_loop_along_and_fails_the_goal(bench, driver, suite):
    goals = GoalProbe(bench, f"{NAMESPACE}/")
    goal = goals.send(**SHORT)
    goal.wait_for_phase(Feedback.PHASE_MOVING)
    driver_group = suite.groups["arm_driver"]
    children = children_of(driver_group.pid)  # in sessions of their own, so not in its group
    assert any("process_main" in command_of(one) for one in children)
    suite.kill("arm_driver")
    result = goal.wait()
    assert result.error_code == Result.INTERRUPTED
    assert "the node arm_driver has gone" in result.error_text
    assert "Watch the arm: the brake request failed" in result.error_text
    assert wait_until(lambda: not driver_group.pids() and not any(map(is_running, children)), PATIENCE)
    # Without a driver a goal says what is missing, by topic and QoS.
    assert not bench.set_parameter(f"{NAMESPACE}/identification", service_timeout=3.0)
    result = goals.send(**SHORT).wait()
    if "the node arm_driver has gone" in result.error_text:  # its last word is a moment ago
        result = goals.send(**SHORT).wait()
    assert result.error_code == Result.DRIVER_NOT_READY
    topic = f"no driver status on topic /{NAMESPACE}/arm_driver/status within 3 s with QoS reliable, transient local"
    assert topic in result.error_text


def test_nothing_stays_behind(suite):
    """Runs last: ends what is left of the suite."""
    pids = [pid for group in suite.groups.values() for pid in group.pids()]
    assert pids
    suite.stop()
    assert all(group.returncode in (0, -9) for group in suite.groups.values())
    assert not [group.name for group in suite.groups.values() if group.pids()]
