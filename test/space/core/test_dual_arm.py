"""The paper's dual-arm robot: its 52 minimal parameters and its settings."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters
from sysid_ros.space.core.robot import body_box, load_free_flyer

# SPACE Table 5, true values, per body [Ixx, Iyy, Izz, Ixy, Iyz, Ixz, m, mcx, mcy, mcz] for the base and
# [Ixx - Iyy, Izz, Ixy, Iyz, Ixz, mcx, mcy] (with what is grouped to them) for the links.
TABLE_5 = {
    "base": [2130.560, 2078.560, 1555.700, -96.630, -269.450, -148.890, 2265.0, 440.5, 679.5, 1033.0],
    "joint_1": [-2.525, 192.775, 7.400, 3.825, 6.000, 100.0, -4.5],
    "joint_2": [-36.866, 55.134, 1.250, 1.670, -6.700, 46.0, -1.6],
    "joint_3": [-14.010, 55.030, 1.380, 5.500, 3.930, 21.0, 12.0],
    "joint_4": [19.600, 256.670, -18.850, 2.330, 4.810, 122.5, 21.25],
    "joint_5": [-66.290, 81.455, 2.112, 1.462, 21.483, 75.75, 1.75],
    "joint_6": [-25.810, 60.370, 27.100, -1.980, 21.270, 36.0, -30.0],
}
BASE = ("Ixx", "Iyy", "Izz", "Ixy", "Iyz", "Ixz", "m", "mcx", "mcy", "mcz")
LINK = ("Ixx", "Izz", "Ixy", "Iyz", "Ixz", "mcx", "mcy")


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("dual_arm")


def test_minimal_parameters_are_those_of_the_paper(robot):
    minimal = build_minimal_parameters(robot.tree)
    found = dict(zip(minimal.names, minimal.values(robot.truth), strict=True))
    expected = {}
    for body, values in TABLE_5.items():
        names = BASE if body == "base" else LINK
        expected |= {f"{body}.{name}": value for name, value in zip(names, values, strict=True)}
    assert found.keys() == expected.keys()
    assert len(found) == 52
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=6e-4), name


def test_some_bodies_of_the_paper_cannot_be(robot):
    """Its links break the triangle inequality, so a simulator of rigid bodies cannot take them as they are."""
    rows = zip(robot.tree.body_names, robot.truth.reshape(robot.tree.count, -1), strict=True)
    impossible = [name for name, row in rows if not is_physically_consistent(row)]
    assert impossible == [f"joint_{k}" for k in range(1, 7)]


def test_a_wheel_that_saturates_is_named(robot):
    with pytest.raises(ParameterOutOfRange, match="wheel_y.*the wheel saturates"):
        robot.wheels.momentum([[0.0, 19.0, 0.0]])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s["joints"].pop("joint_3"), "joint_3"),
        (lambda s: s["joints"].update(elbow={}), "invalid joint 'elbow'"),
        (lambda s: s["joints"]["joint_1"].update(position=[1.0, -1.0]), "the lower limit below the upper"),
        (lambda s: s["reaction_wheels"]["wheel_x"].update(axis=[1.0, 1.0, 0.0]), "a vector of length 1"),
        (lambda s: s.update(colour="red"), "no setting of that name"),
        (lambda s: s.update(urdf="missing.urdf"), "cannot read the URDF .*missing.urdf"),
        (lambda s: s["truth"]["link_2"].update(mass=-1.0), "mass"),
        (lambda s: s["prior"]["link_2"].update(mass=[3.0, 1.0]), "the least mass before the largest"),
        (lambda s: s["prior"].pop("link_4"), "link_4"),
        (lambda s: s.update(tool="claw"), "frame 'claw': expected one of base"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, change, text):
    source = next(folder for folder in config_directories()) / "space" / "dual_arm.yaml"
    settings = yaml.safe_load(source.read_text())
    settings["urdf"] = str((source.parent / settings["urdf"]).resolve())
    change(settings)
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises((ModelError, ParameterOutOfRange), match=text):
        load_free_flyer(path)


@pytest.mark.parametrize("name", ["dual_arm", "servicer"])
def test_ranges_of_the_settings_hold_the_simulated_robot(name):
    robot = load_free_flyer(name)
    assert robot.prior.contains(robot.truth)
    assert robot.prior.contains(robot.tree.parameters)
    minimal = build_minimal_parameters(robot.tree)
    rng = np.random.default_rng(1)
    corners = robot.prior.center + robot.prior.radius * rng.choice([-1.0, 1.0], (200, robot.prior.center.size))
    box = minimal.box(robot.prior)
    assert all(box.contains(minimal.values(corner)) for corner in corners)
    assert robot.frame(robot.tool)[0] == robot.tree.count - 1


def test_box_of_a_body_holds_every_body_of_its_ranges():
    rng = np.random.default_rng(2)
    for _ in range(20):
        com, deviation = rng.normal(size=3), rng.uniform(0.0, 0.5)
        own = np.cov(rng.normal(size=(3, 5)))
        ranges = Box(np.array([1.0]), np.array([3.0])), Box.around(com, np.abs(rng.normal(size=3)))
        box = body_box(*ranges, own, deviation)
        found = []
        for _ in range(200):
            mass = rng.choice([1.0, 3.0, rng.uniform(1.0, 3.0)])
            shift = rng.choice([-1.0, 1.0, 0.0], 3) * ranges[1].radius
            error = np.triu(rng.choice([-deviation, deviation], (3, 3)))
            error = error + np.triu(error, 1).T
            found.append(from_com_form(mass, com + shift, own + error))
            assert box.contains(found[-1])
        reached = np.ptp(found, axis=0) / box.width
        assert reached[:4].min() > 0.9  # and is no larger than it has to be


def test_frames_are_joints_and_links(robot):
    assert robot.frame("joint_3")[0] == 3
    body, placement = robot.frame("tool")
    assert body == 6
    np.testing.assert_allclose(placement.translation, [1.0, 0.0, 0.0])
    with pytest.raises(ParameterOutOfRange, match="frame 'gripper': expected one of base, joint_1.*link_6, tool"):
        robot.frame("gripper")
