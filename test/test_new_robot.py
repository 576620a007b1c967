"""``sysid new-robot``: a settings file of any arm, with what a recording shows of its sensors."""

import re

import numpy as np
import pinocchio as pin
import pytest
import yaml

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.model.loader import load_robot


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
    assert "a name without slashes" in refused(urdf, "--name", "a/b")
    bad = urdf.with_name("bad.urdf")
    bad.write_text(urdf.read_text().replace("<mass value=", "<mass weight="))
    assert "error: " in refused(bad)
    table = tmp_path / "bad.npz"
    np.savez(table, t=[1, 2], q=[0.0])
    assert "bad.npz" in refused(urdf, "--from-bag", table)
    assert door.main(["new-robot", str(urdf), "--output", str(tmp_path / "a.txt")]) == ExitStatus.BAD_INPUT
    assert "a file .yaml" in capsys.readouterr().err


def lifted_arm():
    """Return the URDF of four joints on a lift, without masses."""
    text, links = '<robot name="lifted"><link name="floor"/>', ["floor", "base", "one", "two", "three", "four"]
    for name, axis, parent, child in zip(["lift", "a", "b", "c", "d"], "zzyyx", links, links[1:], strict=False):
        kind, low, high = ("prismatic", 0.1, 0.9) if name == "lift" else ("revolute", -2.5, 2.5)
        xyz = " ".join(str(float(axis == own)) for own in "xyz")
        text += f'''<link name="{child}"><visual><origin xyz="0 0 0.1"/><geometry><box size="0.1 0.12 0.2"/></geometry>
          </visual></link><joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
          <origin xyz="0 0 0.2"/><axis xyz="{xyz}"/><limit lower="{low}" upper="{high}" velocity="3" effort="60"/>
          </joint>'''
    return text + "</robot>"


def test_an_arm_on_a_lift_without_masses_identifies_a_payload(tmp_path, capsys, monkeypatch):
    """The recording is of Pinocchio: point masses in the links, 3 kg in the hand, and the lift among the joints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.urdf").write_text(lifted_arm())
    assert door.main(["new-robot", "arm.urdf"]) == ExitStatus.BAD_INPUT
    told = " ".join(capsys.readouterr().err.split())
    assert "2 problems" in told and "sysid new-robot URDF --total-mass KG" in told and "--lock lift=POSITION" in told
    words = ["new-robot", "arm.urdf", "--total-mass", "10", "--lock", "lift=0.4"]
    assert door.main(words) == ExitStatus.OK
    told = " ".join(capsys.readouterr().out.split())
    assert "bounds of payloads will be wide until `sysid calibrate arm` narrows" in told and "moving mass 8 kg" in told
    assert door.main([*words, "--name", "again"]) == ExitStatus.OK
    (tmp_path / "arm.yaml").unlink()
    assert door.main(words) == ExitStatus.BAD_INPUT and not (tmp_path / "arm.yaml").exists(), (
        "the URDF is there already"
    )

    rng, model = np.random.default_rng(4), pin.buildModelFromXML(lifted_arm())
    for joint in range(2, 6):
        masses = 2.0 * 2.5 ** rng.uniform(-1.0, 1.0) * rng.dirichlet(np.ones(4))
        points = [0.0, 0.0, 0.1] + rng.uniform(-0.5, 0.5, (4, 3)) * [0.1, 0.12, 0.2]
        solid = [pin.Inertia(m, p, 1e-9 * np.eye(3)) for m, p in zip(masses, points, strict=True)]
        model.inertias[joint] = sum(solid, pin.Inertia.Zero())
    payload = pin.Inertia(3.0, np.array([0.02, 0.0, 0.1]), 0.01 * np.eye(3))
    model.inertias[5] = model.inertias[5] + payload
    t, period = np.arange(1, 3001) * 4e-3, 4e-3
    rates, moved = np.array([0.0, 1.3, 0.9, 1.7, 2.1]), np.array([0.0, 0.8, 0.7, 0.8, 0.9])

    def motion(time):
        angle = np.outer(time, rates)
        rest = [0.4, 0.0, 0.6, 0.5, 0.0]
        return rest + moved * np.sin(angle), moved * rates * np.cos(angle), -moved * rates**2 * np.sin(angle)

    data, tau = model.createData(), np.zeros((t.size, 5))
    for part in np.linspace(-1.0, 0.0, 6):  # an effort is the mean since the one before
        q, v, a = motion(t + part * period)
        each = [pin.rnea(model, data, *row) for row in zip(q, v, a, strict=True)]
        tau += (np.array(each) + 2.0 * np.sign(v) + 1.0 * v + 0.3 * a) * (0.1 if part in (-1.0, 0.0) else 0.2)
    q, v, _ = motion(t)
    stamps = np.round(1e9 * t).astype(np.int64)
    units = "t=ns, q=rad, v=rad/s, tau=Nm"
    np.savez("log.npz", t=stamps, q=q, v=v, tau=tau, joints=["lift", "a", "b", "c", "d"], units=units)
    words = ["offline", "log.npz", "--model", "again.yaml", "--effort-sign", "1", "--output", "out"]
    assert door.main(words) in (ExitStatus.OK, ExitStatus.NOT_IDENTIFIED)
    (path,) = (tmp_path / "out").glob("*/estimate.yaml")
    found = yaml.safe_load(path.read_text())
    assert found["alarm"] == "" and found["narrower_than_prior"]["inertia"]
    for row, truth in zip(found["estimate"]["parameters"], payload.toDynamicParameters(), strict=True):
        assert row["lower"] <= truth <= row["upper"], row
