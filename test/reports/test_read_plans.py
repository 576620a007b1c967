"""The command that checks certified plans again, on recordings and on files."""

from __future__ import annotations

import json

import pytest
import yaml

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.verify import main
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.planning.certified_planner import CertifiedPlanner, NextPlan, PayloadKnowledge
from sysid_ros.reports.recordings.plans import PLAN, read_plans
from sysid_ros.reports.recordings.readers import InvalidRecording
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.ros.conversions import (
    certified_from_message,
    certified_plan_to_message,
    scene_from_message,
    scene_to_message,
)
from sysid_ros.ros.conversions.common import InvalidMessage


@pytest.fixture(scope="module")
def plans(robot):
    scene = Scene((Obstacle("wall", [0.0, 0.9, 0.5], [0.5, 0.05, 0.5]),), -0.05, robot.payload_prior.spheres, 0.003)
    planner = CertifiedPlanner(robot)
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.2 * prior.box.radius).intersect(prior.box)  # as after weighing
    payload = PayloadKnowledge.of(robot, box)
    first = planner.plan(NextPlan(payload, start=robot.home, time_limit=60.0), scene, 100.0).plan
    after = first.trajectory.hash()
    second = planner.plan(NextPlan(payload, after=after, at=1.5, time_limit=60.0), scene, 101.5).plan
    return [first, second]


def record(path, messages):
    with RecordingWriter(path) as writer:
        for index, message in enumerate(messages):
            writer.write("/safe_planner/plan", PLAN, message, 10**9 * (100 + index))


def test_a_recording_holds(plans, robot, tmp_path, capsys):
    messages = [certified_plan_to_message(plan, robot.joint_names) for plan in plans]
    file = tmp_path / "recording.mcap"
    record(file, [*messages, messages[1]])
    received = read_plans(file)
    assert [plan.to_dict() for plan in received] == [plan.to_dict() for plan in plans]
    assert main([str(file)]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert "2 of 2 certificates hold" in text and text.count(" HOLDS") == 2 and "interval" in text
    # The parts the driver reads are the same ones.
    trajectory, certificate = certified_from_message(messages[0], robot.joint_names)
    assert certificate.to_dict() == plans[0].certificate.to_dict() and trajectory.hash() == certificate.plan_hash


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.arm_upper.__setitem__(3, 9.0), "issued for parameter box"),
        (lambda m: m.scene.obstacle_centers.__setitem__(1, 0.89), "issued for scene"),
        (lambda m: setattr(m.certificate, "plan_hash", "f" * 64), "issued for plan ffffffffffff"),
        (lambda m: m.certificate.start_velocity.__setitem__(0, 1.0), "rad/s away from the plan"),
        (lambda m: setattr(m, "robot_hash", "0" * 64), "for a robot 000000000000"),
        (lambda m: m.certificate.tracking_bound.__setitem__(2, 1e-3), "position error of joint_3 up to 0.001 rad"),
        (lambda m: m.certificate.nominal_payload.__setitem__(0, 1.2), "its certificate states a "),  # some bound
        (lambda m: setattr(m.certificate, "velocity_bound", []), "states no bound of the velocity error"),
        (lambda m: setattr(m.certificate, "brake_time", 0.15), "is only proven to stay below"),
        (lambda m: setattr(m.certificate, "control_law", "pid"), "is for the controller 'pid'"),
        (lambda m: setattr(m.certificate, "after", "0" * 64), "takes over from plan 000000000000, which is not here"),
    ],
)
def test_a_recording_with_one_changed_number_does_not(plans, robot, tmp_path, capsys, change, text):
    messages = [certified_plan_to_message(plan, robot.joint_names) for plan in plans]
    change(messages[1])
    record(tmp_path / "r.mcap", messages)
    assert main([str(tmp_path / "r.mcap")]) == ExitStatus.FAILED
    printed = capsys.readouterr().out
    assert text in printed and "1 of 2 certificates hold" in printed and "DOES NOT HOLD" in printed


def test_files_and_another_robot(plans, tmp_path, capsys):
    entries = [plan.to_dict() for plan in plans]
    (tmp_path / "plans.json").write_text(json.dumps(entries, allow_nan=False))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(entries[0]))
    assert main([str(tmp_path / "plans.json")]) == main([str(tmp_path / "plan.yaml")]) == ExitStatus.OK
    assert main([str(tmp_path / "plan.yaml"), "--model", "kinova_gen3"]) == ExitStatus.FAILED
    assert "for a robot" in capsys.readouterr().out


def test_input_that_cannot_be_used(plans, robot, tmp_path, capsys):
    bare = certified_plan_to_message(plans[0], robot.joint_names)
    bare.robot_name = ""
    record(tmp_path / "bare.mcap", [bare])
    record(tmp_path / "empty.mcap", [])
    (tmp_path / "list.yaml").write_text("[1, 2]")
    cases = {
        "bare.mcap": "without boxes and scene",
        "empty.mcap": "certified plans is none",
        "list.yaml": "no mapping",
        "absent.mcap": "missing",
    }
    for name, text in cases.items():
        assert main([str(tmp_path / name)]) == ExitStatus.BAD_INPUT
        assert text in capsys.readouterr().err
    short = certified_plan_to_message(plans[0], robot.joint_names)
    short.certificate.margins = short.certificate.margins[:-1]
    record(tmp_path / "short.mcap", [short])
    with pytest.raises(InvalidRecording, match="lengths that fit"):
        read_plans(tmp_path / "short.mcap")


def test_scene_there_and_back(plans, robot):
    scene = plans[0].scene
    message = scene_to_message(scene, frame="base_link")
    assert scene_from_message(message, robot.n).to_dict() == scene.to_dict()
    assert scene_from_message(scene_to_message(Scene()), robot.n).hash() == Scene().hash()
    message.obstacle_centers[0] = 0.1
    with pytest.raises(InvalidMessage, match="hash is"):
        scene_from_message(message, robot.n)
    message.hash = ""
    assert scene_from_message(message, robot.n).obstacles[0].center[0] == 0.1
    message.obstacle_names = ["a", "b"]
    with pytest.raises(InvalidMessage, match="obstacle_centers has 3 entries for 2 obstacles"):
        scene_from_message(message, robot.n)
