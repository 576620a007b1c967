"""The free-flying robot over real topics: processes identify it, refused and cancelled motions, offline the same."""

import time

import numpy as np
import pytest
import yaml
from node_bench import Bench
from rclpy.qos import DurabilityPolicy, QoSCompatibility, QoSProfile, ReliabilityPolicy, qos_check_compatible

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, Trajectory
from sysid_ros.cli.main import main
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.reports.recordings.mcap import read_messages
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.resources import resource
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.plans import trajectory_to_message
from sysid_ros.space.adapters.messages import WORLD
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.nodes.free_flyer_client import CAUGHT
from sysid_ros.space.nodes.free_flyer_driver import FreeFlyerDriverNode
from sysid_ros.space.nodes.free_flyer_identification import FreeFlyerIdentificationNode
from sysid_ros.space.report import read_free_flyer_recording

PATIENCE = 120.0
SHOWN = {
    "RobotModel": "std_msgs/msg/String",
    "Odometry": "nav_msgs/msg/Odometry",
    "MarkerArray": "visualization_msgs/msg/MarkerArray",
}
"""Types of messages that displays of RViz take; the transforms have no topic to choose."""


def wait(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)


@pytest.fixture
def bench():
    given = {
        "model": "servicer",
        "free_flyer_driver:speed": 5.0,
        "free_flyer_driver:commander_timeout": 3.0,
        "free_flyer_identification:excitation_time_limit": 12.0,
    }
    bench = Bench(*(word for name, value in given.items() for word in ("-p", f"{name}:={value}")))
    yield bench
    bench.close()


@pytest.fixture
def driver(bench):
    """The driver at five times real time."""
    return bench.run(FreeFlyerDriverNode())


@pytest.fixture
def statuses(bench, driver):
    heard = []
    bench.node.create_subscription(DriverStatus, "free_flyer_driver/status", heard.append, qos.STATUS)
    wait(lambda: heard)
    return heard


def names(robot):
    return [*robot.joint_names, *robot.wheels.names]


def test_refused_is_said_with_the_hash_and_silence_brakes(bench, driver, statuses):
    robot = load_free_flyer("servicer")
    publisher = bench.node.create_publisher(Trajectory, "free_flyer_driver/trajectory", 1)
    wait(lambda: publisher.get_subscription_count())
    start = np.concatenate([robot.home, np.zeros(3)])
    fast = trajectory_to_message(CycloidTrajectory(np.array([start, start + 0.5]), 1.0), names(robot))
    publisher.publish(fast)
    wait(lambda: statuses[-1].plan_id == fast.hash or any(one.plan_id == fast.hash for one in statuses))
    refused = next(one for one in statuses if one.plan_id == fast.hash)
    assert (refused.mode, refused.code) == (DriverStatus.MODE_HOLD, DriverStatus.CODE_LIMIT)
    assert "its limit is 0.25 rad/s" in refused.text
    # Nobody sends a heartbeat: the robot comes to rest on its path, long before the end.
    steps = np.linspace(0.0, 6.0, 61)[:, None] * np.array([0.1, 0, 0, 0.1, 0, 0, 0, 0])
    steps = np.minimum(steps, 2.0)
    slow = trajectory_to_message(CycloidTrajectory(start + steps, 1.0), names(robot))
    publisher.publish(slow)
    wait(lambda: any(one.plan_id == slow.hash and one.mode == DriverStatus.MODE_TRACK for one in statuses))
    wait(lambda: statuses[-1].mode == DriverStatus.MODE_HOLD and statuses[-1].code == DriverStatus.CODE_STALE)


def test_a_cancelled_goal_rests_and_a_bad_one_is_refused(bench, driver, statuses):
    bench.run(FreeFlyerIdentificationNode())
    client = bench.action_client(Identify, "free_flyer_identification/identify")
    wait(client.server_is_ready)
    handle = client.send_goal_async(Identify.Goal(target_mass_width=0.1))
    wait(handle.done)
    outcome = handle.result().get_result_async()
    wait(outcome.done)
    assert outcome.result().result.error_code == Identify.Result.INVALID_GOAL
    phases = []
    sent = client.send_goal_async(
        Identify.Goal(max_motion_time=20.0), feedback_callback=lambda message: phases.append(message.feedback.phase)
    )
    wait(sent.done)
    wait(lambda: Identify.Feedback.PHASE_MOVING in phases)
    sent.result().cancel_goal_async()
    outcome = sent.result().get_result_async()
    wait(outcome.done)
    assert outcome.result().result.error_code == Identify.Result.CANCELED
    assert statuses[-1].mode == DriverStatus.MODE_HOLD


def test_what_rviz_shows_is_there_with_its_type_and_quality(bench, driver):
    bench.run(FreeFlyerIdentificationNode())
    view = yaml.safe_load(resource("rviz/space_robot.rviz").read_text())["Visualization Manager"]
    kinds = []
    for display in view["Displays"]:
        kinds.append(display["Class"].removeprefix("rviz_default_plugins/"))
        if kinds[-1] == "TF":
            continue
        topic = display.get("Topic") or display["Description Topic"]
        name = f"/{topic['Value']}"
        wait(lambda name=name: bench.node.get_publishers_info_by_topic(name))
        listening = QoSProfile(
            depth=topic["Depth"],
            reliability=ReliabilityPolicy[topic["Reliability Policy"].upper()],
            durability=DurabilityPolicy[topic.get("Durability Policy", "Volatile").upper().replace(" ", "_")],
        )
        for publisher in bench.node.get_publishers_info_by_topic(name):
            assert publisher.topic_type == SHOWN[kinds[-1]], name
            assert qos_check_compatible(publisher.qos_profile, listening)[0] != QoSCompatibility.ERROR, name
    assert sorted(kinds) == ["MarkerArray", "Odometry", "RobotModel", "TF"]
    assert view["Global Options"]["Fixed Frame"] == WORLD


def test_the_runner_identifies_and_offline_agrees(tmp_path, capfd):
    words = ["--model", "servicer", "--speed", "10", "--planning-time", "5", "--max-motion-time", "30"]
    assert main(["space", *words, "--object", "--results", str(tmp_path / "run")]) == 0
    said = capfd.readouterr().out
    assert "Identified" in said
    assert "In the hand:" in said
    (folder,) = (tmp_path / "run").iterdir()
    content = yaml.safe_load((folder / "estimate.yaml").read_text())
    rows = content["minimal_parameters"]
    assert len(rows) == 45
    errors = np.array([(row["value"] - row["truth"]) / row["standard_deviation"] for row in rows])
    assert np.abs(errors).max() < 6.0
    assert np.median(np.abs([row["value"] - row["truth"] for row in rows])) < 0.1 * np.median(
        np.abs([row["before"] - row["truth"] for row in rows])
    )
    assert all(row["lower"] <= row["truth"] <= row["upper"] for row in rows)
    assert max(map(abs, content["simulation"]["momentum_drift"]["values"])) < 1e-5
    assert "except with a probability of at most 1e-06" in content["guarantee"]
    report = (folder / "report.html").read_text()
    assert "<svg" in report
    assert "a probability of at most 1e-06" in report
    held = yaml.safe_load((folder / "object" / "estimate.yaml").read_text())
    assert "with a probability of at most" in held["guarantee"]
    assert held["mass"]["lower"] <= held["mass"]["truth"] == pytest.approx(CAUGHT[0])
    assert held["mass"]["truth"] <= held["mass"]["upper"] < 0.6 * held["prior"]["mass"]["upper"]
    assert all(row["lower"] <= row["truth"] <= row["upper"] for row in held["parameters"])
    kinds = {message.topic for message in read_messages(folder / "recording.mcap")}
    assert {"/tf", "/tf_static", "/robot_description", "/joint_states"} <= kinds
    log = (folder / "log" / "free_flyer_driver.log").read_text()
    drift = [float(word) for word in log.split("kg m^2/s]: ")[1].split("\n")[0].split(", ")]
    assert max(drift) < 1e-5

    assert main(["space", "--recording", str(folder / "recording.mcap"), "--results", str(tmp_path / "offline")]) == 0
    (offline,) = (tmp_path / "offline").iterdir()
    again = yaml.safe_load((offline / "estimate.yaml").read_text())["minimal_parameters"]
    for one, other in zip(rows, again, strict=True):
        assert abs(one["value"] - other["value"]) < 2.0 * one["standard_deviation"], one["name"]
    # So does the object, with the robot as it was identified and the recording from before the catch.
    words = ["--recording", str(folder / "object" / "recording.mcap"), "--object", "--known"]
    words += [str(folder / "estimate.yaml"), "--before", str(folder / "recording.mcap")]
    assert main(["space", *words, "--results", str(tmp_path / "held")]) == 0
    (offline,) = (tmp_path / "held").iterdir()
    again = yaml.safe_load((offline / "estimate.yaml").read_text())
    assert again["mass"]["value"] == pytest.approx(held["mass"]["value"], abs=0.3)
    assert again["mass"]["lower"] <= CAUGHT[0] <= again["mass"]["upper"]
    with pytest.raises(InvalidRecording, match="the joints"):
        read_free_flyer_recording(folder / "recording.mcap", load_free_flyer("dual_arm"))


def test_wrong_options_are_one_sentence(tmp_path, capsys):
    assert main(["space", "--model", "rocket", "--results", str(tmp_path)]) == 2
    assert "'rocket' is unknown; known are" in capsys.readouterr().err
    assert main(["space", "--speed", "fast", "--results", str(tmp_path)]) == 2
    assert "--speed 'fast': expected a number" in capsys.readouterr().err
    assert main(["space", "--recording", str(tmp_path / "none.mcap"), "--results", str(tmp_path)]) == 2
    assert "missing" in capsys.readouterr().err
