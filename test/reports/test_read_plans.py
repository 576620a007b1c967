"""The command that checks certified plans again, on recordings and on files."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from textbook import load_textbook

from sysid_ros.cli import main as door
from sysid_ros.cli import verify
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.verify import CheckedPlan, describe_margins
from sysid_ros.core.certification import recheck
from sysid_ros.core.certification.assumptions import Assumptions, robot_hash
from sysid_ros.core.certification.certificate import CertificateMismatch
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.sampled_loop import LoopMargins
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanRequest
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.reports.recordings.runs import PLAN, read_plans
from sysid_ros.ros.conversions.common import InvalidMessage
from sysid_ros.ros.conversions.plans import (
    certificate_to_message,
    certified_from_message,
    certified_plan_to_message,
    scene_from_message,
    scene_to_message,
)


@pytest.fixture(autouse=True)
def _textbook_arms(monkeypatch):
    monkeypatch.setattr(verify, "load_robot", load_textbook)


@pytest.fixture(scope="module")
def plans(robot):
    scene = Scene((Obstacle("wall", [0.0, 0.9, 0.5], [0.5, 0.05, 0.5]),), -0.05, robot.payload_prior.spheres, 0.003)
    planner = CertifiedPlanner(robot)
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.2 * prior.box.radius).intersect(prior.box)  # as after weighing
    assumptions = Assumptions.of_payload(robot, box, scene=scene)
    first = planner.plan(PlanRequest(assumptions, start=robot.home, time_limit=60.0), 100.0)
    second = planner.plan(PlanRequest(assumptions, predecessor=first, takeover_time=1.5, time_limit=60.0), 101.5)
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
    assert door.main(["verify", str(file)]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert "2 of 2 certificates hold" in text and text.count(" HOLDS") == 2 and plans[0].plan_id[:8] in text
    # The parts the driver reads are the same ones.
    trajectory, certificate = certified_from_message(messages[0], robot.joint_names)
    assert certificate.to_dict() == plans[0].certificate.to_dict() and trajectory.hash() == certificate.path_hash


def test_of_a_recording_that_was_cut_off_the_plans_before_are_proven(plans, robot, tmp_path, capsys):
    first, second = (certified_plan_to_message(plan, robot.joint_names) for plan in plans)
    file = tmp_path / "recording.mcap"
    record(file, [first] * 400 + [second])
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    reasons = []
    (found,) = read_plans(file, on_cut=reasons.append)
    assert found.plan_id == plans[0].plan_id and len(reasons) == 1
    assert door.main(["verify", str(file)]) == ExitStatus.OK
    told = capsys.readouterr().out
    assert "1 of 1 certificates hold" in told and "note: the recording is cut off or damaged" in told


def test_ctrl_c_keeps_the_plans_so_far(plans, robot, tmp_path, capsys, monkeypatch):
    record(tmp_path / "r.mcap", [certified_plan_to_message(plan, robot.joint_names) for plan in plans])

    def check(*_):
        yield CheckedPlan(plans[0], None, ())
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify_plans", check)
    assert door.main(["verify", str(tmp_path / "r.mcap")]) == ExitStatus.STOPPED
    told = capsys.readouterr()
    assert "1 of 1 certificates hold" in told.out and "stopped: 1 of 2 were not checked" in told.out
    assert "50 %  plan 2 of 2" in told.err


def restated(message, robot, **changes):
    """The message with other statements in its certificate, and the ``plan_id`` that belongs to them."""
    _, certificate = certified_from_message(message, robot.joint_names)
    message.certificate = certificate_to_message(replace(certificate, **changes), robot.joint_names)


def tight(certificate):
    bound = certificate.tracking_bound.copy()
    bound[2] = 1e-3
    return bound


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"robot_hash": "0" * 64}, "for a robot 000000000000"),
        ({"path_hash": "f" * 64}, "issued for path ffffffffffff"),
        ({"tracking_bound": tight}, "position error of joint_3 up to 0.001 rad"),
        ({"nominal_payload": lambda certificate: 1.2 * certificate.nominal_payload}, "its certificate states a "),
        ({"brake_time": 0.15}, "braking torque"),
        ({"control_law": ControlLaw("pid")}, "is for the controller 'pid'"),
        ({"predecessor": "0" * 64}, "takes over from plan 000000000000, which is not here"),
        ({"predecessor": None}, "it starts in motion, but its certificate is about a start from rest"),
        ({"takeover_time": 1.4}, "it does not start in the state of plan"),
    ],
)
def test_a_recording_that_states_something_else_does_not_hold(plans, robot, tmp_path, capsys, changes, text):
    messages = [certified_plan_to_message(plan, robot.joint_names) for plan in plans]
    given = {name: value(plans[1].certificate) if callable(value) else value for name, value in changes.items()}
    restated(messages[1], robot, **given)
    expect_not_proven(messages, tmp_path, capsys, text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.arm_upper.__setitem__(3, 9.0), "issued for parameter box"),
        (lambda m: m.scene.obstacle_centers.__setitem__(1, 0.89), "issued for scene"),
    ],
)
def test_a_recording_with_one_changed_number_does_not_hold(plans, robot, tmp_path, capsys, change, text):
    messages = [certified_plan_to_message(plan, robot.joint_names) for plan in plans]
    change(messages[1])
    expect_not_proven(messages, tmp_path, capsys, text)


def expect_not_proven(messages, folder, capsys, text):
    record(folder / "r.mcap", messages)
    assert door.main(["verify", str(folder / "r.mcap")]) == ExitStatus.FAILED
    printed = capsys.readouterr().out
    assert text in printed and "1 of 2 certificates hold" in printed and "DOES NOT HOLD" in printed


def test_a_changed_certificate_or_another_format_cannot_be_read(plans, robot, tmp_path):
    for name, change, text in (
        ("id", lambda m: setattr(m.certificate, "plan_id", "f" * 64), "its plan_id is 'ffffffffffff'"),
        ("time", lambda m: setattr(m.certificate, "brake_time", 0.15), "but its content has"),
        ("format", lambda m: setattr(m, "format_version", 1), "recorded in format 1, .* reads format 3"),
    ):
        message = certified_plan_to_message(plans[0], robot.joint_names)
        change(message)
        record(tmp_path / f"{name}.mcap", [message])
        with pytest.raises((InvalidRecording, CertificateMismatch), match=text):
            read_plans(tmp_path / f"{name}.mcap")


def test_the_least_margins_are_those_of_the_worst_loop(plans):
    good = LoopMargins(0.99, *(np.array(x) for x in ([0.5, 0.4], [3.0, 2.0], [1.0, 1.2], [0.003, 0.002])))
    worse = replace(good, gain=np.array([1.7, 4.0]))
    unstable = replace(good, radius=1.01, gain=np.full(2, np.nan))
    names = ("a", "b")

    def text(*loops):
        return describe_margins([CheckedPlan(plans[0], None, (), loop) for loop in loops], names)

    assert text(good, worse, None).endswith("plans: gain 1.70 (a), phase 57 deg (a), delay 2.00 ms (b)")
    assert text(good, unstable) == "loop margins: none, a loop is unstable (spectral radius 1.0100)"
    assert text(None) == ""


@pytest.mark.slow
def test_files_and_another_robot(plans, tmp_path, capsys):
    entries = [plan.to_dict() for plan in plans]
    (tmp_path / "plans.json").write_text(json.dumps(entries, allow_nan=False))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(entries[0]))
    assert (
        door.main(["verify", str(tmp_path / "plans.json")])
        == door.main(["verify", str(tmp_path / "plan.yaml")])
        == ExitStatus.OK
    )
    printed = capsys.readouterr().out
    assert re.search(r"margins at the starts of plans: gain 4.\d\d \(joint_\d\), phase \d\d deg \(joint_\d\)", printed)
    assert door.main(["verify", str(tmp_path / "plan.yaml"), "--model", "kinova_gen3"]) == ExitStatus.FAILED
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
        assert door.main(["verify", str(tmp_path / name)]) == ExitStatus.BAD_INPUT
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


def test_bounds_that_are_proven_throughout_are_tried_as_well(plans, robot, tmp_path, capsys):
    record(tmp_path / "r.mcap", [certified_plan_to_message(plan, robot.joint_names) for plan in plans])
    assert door.main(["verify", str(tmp_path / "r.mcap"), "--enclose-terms"]) == ExitStatus.OK
    assert "2 of 2 certificates hold" in capsys.readouterr().out


def test_the_robot_is_the_one_that_a_certificate_is_for():
    """The name in a plan says neither whether its joints are elastic nor which payload prior counts."""
    for words in ("kinova_gen3_2f85:elastic", "kinova_gen3_2f85:safe_id_table_1"):
        robot = load_textbook(words)
        found = verify._robot_of(robot.name, robot_hash(robot))
        assert robot.name == "kinova_gen3_2f85" and robot_hash(found) == robot_hash(robot)
        assert found.payload_prior.name == robot.payload_prior.name
    assert verify._robot_of(robot.name, "0" * 64).elasticity is None


def test_a_limit_that_is_broken_with_a_bound_that_is_proven_throughout_is_named(plans, robot, monkeypatch):
    real = recheck.verify

    def verify_with_less_room(assumptions, trajectory, errors, settings):
        return real(assumptions, trajectory, replace(errors, position=errors.position + 1.0), settings)

    monkeypatch.setattr(recheck, "verify", verify_with_less_room)
    checker = recheck.BoundRechecker(robot, encloses_terms=True)
    assert checker.check(plans[0]) == ()
    (problem,) = recheck.recheck(robot, plans[0], bound=checker.latest, takes_larger=True).problems
    assert "limit broken" in problem
