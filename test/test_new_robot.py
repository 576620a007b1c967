"""``sysid new-robot``: a settings file of any arm, with what a recording shows of its sensors."""

import re

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.loader import load_robot
from sysid_ros.resources import resource


@pytest.fixture
def urdf(tmp_path):
    path = tmp_path / "shop" / "my_arm.urdf"
    path.parent.mkdir()
    path.write_text(load_robot("xarm7").urdf)
    return path


def write_bag(path, sign=1.0, moves=True):
    """Two seconds at rest, then a motion, with torques against gravity and noise of known size."""
    robot, rng = load_robot("xarm7"), np.random.default_rng(2)
    t = 1_000_000 * np.arange(3000)
    phase = np.maximum(1e-9 * t - 2.0, 0.0) if moves else 0.0 * t
    start = robot.home + 0.1
    q = start + np.outer(1.0 - np.cos(2.0 * phase), np.full(robot.n, 0.2))
    v = np.outer(2.0 * np.sin(2.0 * phase), np.full(robot.n, 0.2))
    data = robot.pin_model.createData()
    tau = np.array([pin.computeGeneralizedGravity(robot.pin_model, data, row) for row in q])
    tau = sign * (tau + rng.uniform(-0.3, 0.3, tau.shape))
    q = np.round(q / 5e-4) * 5e-4 + np.where(rng.random(q.shape) < 0.01, 5e-4, 0.0)
    v = v + rng.uniform(-0.01, 0.01, v.shape)
    units = "t=ns, q=rad, v=rad/s, tau=Nm"
    np.savez(path, t=t, q=q, v=v, tau=tau, joints=list(robot.joint_names), units=units)
    return start


def test_a_settings_file_is_written_and_loads(urdf, capsys, monkeypatch):
    monkeypatch.chdir(urdf.parent)
    assert door.main(["new-robot", "my_arm.urdf"]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert "my_arm: 7 joints (joint1, " in text and "Settings: my_arm.yaml" in text
    assert "0 collision spheres" in text and "friction is unknown" in text
    robot = load_robot(urdf.parent / "my_arm.yaml")
    assert robot.name == "my_arm" and np.all(robot.friction(robot.theta_box.radius) > 0.0)
    assert door.main(["new-robot", "my_arm.urdf"]) == ExitStatus.BAD_INPUT
    assert "this one is there already" in capsys.readouterr().err


def test_a_recording_shows_home_sign_and_errors_of_the_sensors(urdf, tmp_path, capsys):
    start = write_bag(tmp_path / "first.npz", sign=-1.0)
    output = tmp_path / "elsewhere" / "arm.yaml"
    output.parent.mkdir()
    words = ["new-robot", str(urdf), "--from-bag", str(tmp_path / "first.npz"), "--output", str(output)]
    assert door.main(words) == ExitStatus.OK
    robot = load_robot(output)
    assert robot.name == "arm" and robot.sensors.effort_sign == -1.0
    assert robot.home == pytest.approx(start, abs=1e-3)
    assert not any("home posture" in text for text in robot.assumptions), "it was seen"
    sensors = robot.sensors
    assert np.all((sensors.effort_absolute_error >= 0.5) & (sensors.effort_absolute_error < 0.7))
    assert np.all((sensors.velocity_error >= 0.018) & (sensors.velocity_error < 0.03))
    assert sensors.position_resolution == pytest.approx(np.full(7, 5e-4), rel=0.01)
    text = output.read_text()
    assert "first.npz: efforts are against joint direction" in text and "urdf: ../shop/my_arm.urdf" in text
    assert "errors are 2 times the largest of 2" in text
    assert "efforts are against joint direction" in capsys.readouterr().out


def test_a_shipped_arm_is_named_whether_its_urdf_has_masses_or_not(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = load_robot("ur5e").urdf
    (tmp_path / "mine.urdf").write_text(text)
    assert door.main(["new-robot", "mine.urdf"]) == ExitStatus.OK
    words = "--model ur10e or --model ur16e or --model ur3e or --model ur5e (its joints have these names)"
    shipped = f"ur10e, ur16e, ur3e, ur5e are shipped: {words}"
    assert shipped in " ".join(capsys.readouterr().out.split())
    (tmp_path / "bare.urdf").write_text(re.sub(r"(?s)<inertial>.*?</inertial>", "", text))
    assert door.main(["new-robot", "bare.urdf"]) == ExitStatus.BAD_INPUT
    told = capsys.readouterr().err
    assert "joints 'shoulder_pan_joint', 'shoulder_lift_joint'" in told and "move nothing that has mass" in told
    assert shipped in told and "gazebo:=true" in told and not (tmp_path / "bare.yaml").exists()


def test_missing_meshes_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shape = '<visual><geometry><mesh filename="package://lost/a.stl"/></geometry></visual>'
    text = re.sub(r"(?s)<(visual|collision)>.*?</\1>", "", load_robot("xarm7").urdf)
    (tmp_path / "arm.urdf").write_text(text.replace("</inertial>", f"</inertial>{shape}"))
    assert door.main(["new-robot", "arm.urdf"]) == ExitStatus.OK
    lines = " ".join(capsys.readouterr().out.split())
    assert lines.count("package://lost/a.stl") == 1 and "have none; of " in lines


def test_what_cannot_be_used_is_refused_and_nothing_is_written(urdf, tmp_path, capsys):
    output = tmp_path / "new.yaml"

    def refused(*words):
        assert door.main(["new-robot", *map(str, words), "--output", str(output)]) == ExitStatus.BAD_INPUT
        assert not output.exists()
        return capsys.readouterr().err

    assert "cannot read the URDF" in refused(tmp_path / "none.urdf")
    assert "link 'hand': does not exist" in refused(urdf, "--tool", "hand")
    assert "invalid joint 'elbow'" in refused(urdf, "--joints", "joint1,elbow")
    assert "a name without slashes" in refused(urdf, "--name", "a/b")
    bad = urdf.with_name("bad.urdf")
    bad.write_text(urdf.read_text().replace("<mass value=", "<mass weight="))
    assert "error: " in refused(bad)
    xacro = urdf.with_name("x.urdf")
    xacro.write_text('<robot name="${prefix}" xmlns:xacro="http://ros.org/wiki/xacro"><xacro:arm/></robot>')
    assert "expand it first" in refused(xacro)
    table = tmp_path / "bad.npz"
    np.savez(table, t=[1, 2], q=[0.0])
    assert "bad.npz" in refused(urdf, "--from-bag", table)
    assert door.main(["new-robot", str(urdf), "--output", str(tmp_path / "a.txt")]) == ExitStatus.BAD_INPUT
    assert "a file .yaml" in capsys.readouterr().err


def test_every_other_command_takes_a_bare_urdf(tmp_path, capsys):
    write_bag(tmp_path / "log.npz")
    words = ["import", str(tmp_path / "log.npz"), "--model", str(resource("urdf/xarm7.urdf"))]
    assert door.main([*words, "--output", str(tmp_path / "table.npz")]) == ExitStatus.OK
    assert "3000 samples" in capsys.readouterr().out
