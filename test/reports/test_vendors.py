"""Vendor forms against formulas of their own: rebuilt from what the file says, a load must have the same dynamics."""

import ast
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.reports import payload_files
from sysid_ros.reports.payload import Bounded, summarize
from sysid_ros.reports.payload_files import Load, payload_file


@pytest.fixture
def loads():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(40):
        axes = Rotation.random(random_state=rng).as_matrix()
        sizes = rng.uniform(0.02, 0.3, 3)
        mass = rng.uniform(0.1, 5)
        moments = mass / 12 * (np.sum(sizes**2) - sizes**2)
        found.append(Load(mass, rng.uniform(-0.2, 0.2, 3), axes @ np.diag(moments) @ axes.T, "flange"))
    return found


def _kinetic_energy(mass, com, inertia, linear, angular):
    speed = linear + np.cross(angular, com)
    return 0.5 * mass * speed @ speed + 0.5 * angular @ inertia @ angular


def _same_energy(load, mass, com, inertia):
    rng = np.random.default_rng(6)
    for linear, angular in rng.standard_normal((10, 2, 3)):
        expected = _kinetic_energy(load.mass, load.com, load.inertia_com, linear, angular)
        assert _kinetic_energy(mass, com, inertia, linear, angular) == pytest.approx(expected, rel=2e-5)


def test_kuka_load_data_describe_the_same_body(loads):
    for load in loads:
        d = payload_files.kuka_load_data(load)
        axes = Rotation.from_euler("ZYX", [d["A"], d["B"], d["C"]], degrees=True).as_matrix()
        inertia = axes @ np.diag([d["JX"], d["JY"], d["JZ"]]) @ axes.T
        _same_energy(load, d["M"], 1e-3 * np.array([d["X"], d["Y"], d["Z"]]), inertia)


def _bounded(rng, share, thin):
    """A body and bounds within a share of its parameters; a thin one is a rod, hardly a body once it is rounded."""
    axes = Rotation.random(random_state=rng).as_matrix()
    sizes = rng.uniform(0.02, 0.3, 3) * ([1.0, 1e-3, 1e-3] if thin else 1.0)
    mass = rng.uniform(0.1, 5)
    inertia = axes @ np.diag(mass / 12 * (np.sum(sizes**2) - sizes**2)) @ axes.T
    theta = from_com_form(mass, rng.uniform(-0.2, 0.2, 3), inertia)
    room = share * rng.uniform(0.2, 1.0, (2, 10)) * np.maximum(np.abs(theta), 1e-3)
    return summarize(Bounded(theta, theta - room[0], theta + room[1]), (np.eye(3), np.zeros(3)), "flange")


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.05, 1e-3, 1e-6])
def test_numbers_have_the_digits_that_their_bounds_support(share, thin):
    rng = np.random.default_rng(8)
    for _ in range(25):
        summary = _bounded(rng, share, thin)
        load = Load.from_summary(summary)
        assert is_physically_consistent(load.parameters) and np.all(summary.parameters.contains(load.parameters))
        assert summary.mass.contains(load.mass) and np.all(summary.com.contains(load.com))
        assert np.all(summary.inertia_com.contains(load.inertia_com))
        assert abs(load.mass - summary.mass.values) <= 0.05 * 0.5 * summary.mass.width
        d = payload_files.kuka_load_data(load)
        axes = Rotation.from_euler("ZYX", [d["A"], d["B"], d["C"]], degrees=True).as_matrix()
        inertia = axes @ np.diag([d["JX"], d["JY"], d["JZ"]]) @ axes.T
        assert is_physically_consistent(from_com_form(d["M"], 1e-3 * np.array([d["X"], d["Y"], d["Z"]]), inertia))
        assert np.all(summary.inertia_com.contains(inertia))
        if not thin:  # no digit more than supported, unless the body would be lost
            finest = 10.0 ** np.floor(np.log10(0.5 * summary.mass.width) - 1.0)
            assert abs(load.mass / finest - round(load.mass / finest)) < 1e-6


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [(1.81234, 0.339, "1.81"), (1.81234, 0.08, "1.812"), (-0.023456, 0.0011, "-0.0235"), (123.4, 30.0, "123.0")],
)
def test_the_last_digit_is_a_tenth_of_the_leading_one_of_the_half_width(value, half_width, text):
    found = payload_files.round_supported(np.array([value]), np.array([half_width]), lambda values: True)
    assert str(float(found[0])) == text
    kept = payload_files.round_supported(np.array([value]), np.array([half_width]), lambda v: abs(v[0] - value) < 1e-3)
    assert abs(kept[0] - value) < 1e-3, "more digits where what must be kept is lost"


def test_kuka_angles_stay_small_for_a_nearly_aligned_load():
    turn = Rotation.from_euler("xyz", [3, -4, 5], degrees=True).as_matrix()
    load = Load(1.0, np.zeros(3), turn @ np.diag([3e-3, 1e-3, 2e-3]) @ turn.T, "flange")
    d = payload_files.kuka_load_data(load)
    assert max(abs(d["A"]), abs(d["B"]), abs(d["C"])) < 8.0
    assert (d["JX"], d["JY"], d["JZ"]) == pytest.approx((3e-3, 1e-3, 2e-3))


@pytest.mark.parametrize("b", [90.0, -90.0])
def test_kuka_angles_at_the_singularity(b):
    rotation = Rotation.from_euler("ZYX", [25.0, b, 40.0], degrees=True).as_matrix()
    again = Rotation.from_euler("ZYX", payload_files.kuka_angles(rotation), degrees=True).as_matrix()
    assert np.allclose(again, rotation, atol=1e-9)


def test_ur_script_line_describes_the_same_body(loads):
    for load in loads:
        line = payload_files.ur_target_payload(load)
        assert "e" not in line.split("(", 1)[1], "robot languages differ in whether they read exponents"
        mass, com, tensor = ast.literal_eval(re.fullmatch(r"set_target_payload(\(.*\))", line).group(1))
        xx, yy, zz, xy, xz, yz = tensor
        _same_energy(load, mass, np.array(com), np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))


def test_kinova_and_moveit_settings(loads):
    for load in loads:
        kinova = payload_files.kinova_settings(load)
        assert kinova["mass_kg"] == pytest.approx(load.mass, rel=1e-5)
        assert [kinova["mass_center_m"][axis] for axis in "xyz"] == pytest.approx(load.com, rel=1e-5)
        inertial = payload_files.moveit_blocks(load)["urdf_inertial"]
        i = {name: inertial[f"i{name}"] for name in ("xx", "xy", "xz", "yy", "yz", "zz")}
        tensor = np.array([[i["xx"], i["xy"], i["xz"]], [i["xy"], i["yy"], i["yz"]], [i["xz"], i["yz"], i["zz"]]])
        _same_energy(load, inertial["mass"], np.array(inertial["origin_xyz"]), tensor)


def test_files_say_units_and_frames(loads):
    tool, flange = loads[0], loads[1]
    kinova = payload_file("payload_kinova.yaml", "a note", tool=tool, whole=flange)
    assert kinova.startswith("# a note\n") and "METRES" in kinova
    assert yaml.safe_load(kinova)["payload_information"] == payload_files.kinova_settings(tool)
    kuka = payload_file("payload_kuka.yaml", flange=tool, whole=flange)
    assert yaml.safe_load(kuka)["tool_and_payload"] == payload_files.kuka_load_data(flange)
    assert re.match(r"\{M [\d.]+,CM \{X ", yaml.safe_load(kuka)["payload_krl"]) and "[mm]" in kuka
    script = payload_file("payload_ur.script", flange=tool, whole=flange)
    code = [line for line in script.splitlines() if not line.startswith("#")]
    assert code == [payload_files.ur_target_payload(flange)]
    moveit = yaml.safe_load(payload_file("payload_moveit.yaml", tool=tool))
    assert moveit["attached_collision_object"]["weight"] == pytest.approx(tool.mass, rel=1e-5)


def test_a_load_no_body_can_have_is_refused():
    with pytest.raises(NotPhysicallyConsistent, match="load at flange"):
        Load.from_parameters(from_com_form(1.0, [0, 0, 0], np.diag([1.0, 0.1, 0.1])), "flange")


def test_franka_describes_the_same_body_column_by_column(loads):
    transform = np.eye(4)
    transform[:3, :3] = Rotation.from_euler("xyz", [0.1, 0.2, -0.7]).as_matrix()
    transform[:3, 3] = [0.01, -0.02, 0.1034]
    for load in loads[:10]:
        data = json.loads(
            payload_file("payload_franka.json", "a note", whole=load, flange=loads[0], tool_in_flange=transform)
        )
        _same_energy(load, data["mass"], np.array(data["centerOfMass"]), np.reshape(data["inertia"], (3, 3), order="F"))
        assert np.reshape(data["transformation"], (4, 4), order="F") == pytest.approx(transform, abs=1e-6)
        alone = data["setLoad"]
        tensor = np.reshape(alone["load_inertia"], (3, 3), order="F")
        _same_energy(loads[0], alone["load_mass"], np.array(alone["F_x_Cload"]), tensor)
        assert data["comments"][0] == "a note"


def test_mujoco_reads_the_same_body(loads):
    mujoco = pytest.importorskip("mujoco")
    for load in loads[:10]:
        model = mujoco.MjModel.from_xml_string(payload_file("payload_mjcf.xml", "a -- note", tool=load))
        body = model.body("identified_payload")
        turn = Rotation.from_quat(np.roll(body.iquat, -1)).as_matrix()
        _same_energy(load, float(body.mass[0]), body.ipos, turn @ np.diag(body.inertia) @ turn.T)


def test_sdf_and_xacro_hold_the_same_body(loads):
    for load in loads[:10]:
        sdf = ElementTree.fromstring(payload_file("payload.sdf", tool=load)).find("model/link/inertial")
        i = {e.tag: float(e.text) for e in sdf.find("inertia")}
        tensor = np.array([[i[f"i{min(a, b)}{max(a, b)}"] for b in "xyz"] for a in "xyz"])
        _same_energy(load, float(sdf.findtext("mass")), np.array(sdf.findtext("pose").split()[:3], dtype=float), tensor)
        root = ElementTree.fromstring(payload_file("payload.xacro", "a -- note", tool=load))
        macro = root.find("{http://www.ros.org/wiki/xacro}macro")
        assert macro.get("params") == "parent:='flange' prefix:=''"
        inertial = macro.find("link/inertial")
        i = {name: float(value) for name, value in inertial.find("inertia").attrib.items()}
        tensor = np.array([[i[f"i{min(a, b)}{max(a, b)}"] for b in "xyz"] for a in "xyz"])
        com = np.array(inertial.find("origin").get("xyz").split(), dtype=float)
        _same_energy(load, float(inertial.find("mass").get("value")), com, tensor)


def test_the_planning_scene_attaches_the_weight(loads):
    scene = payload_files.planning_scene(loads[3])
    (attached,) = scene["robot_state"]["attached_collision_objects"]
    assert scene["is_diff"] and scene["robot_state"]["is_diff"]
    assert attached["weight"] == pytest.approx(loads[3].mass, rel=1e-5) and attached["link_name"] == "flange"
    place = attached["object"]["primitive_poses"][0]["position"]
    assert [place[axis] for axis in "xyz"] == pytest.approx(loads[3].com, rel=1e-5)
