"""The shipped robots against published numbers: masses, inertias, limits, and torques computed from other files."""

import json
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from urdf_parser_py.urdf import URDF

from sysid_ros.core.collision.clearance import describe_overlapping_links
from sysid_ros.core.model.inertia import is_physically_consistent
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning, parameter_names, parameter_units, tool_transform
from sysid_ros.core.model.robot_files import available_robots, config_directories

HERE = Path(__file__).parent
FACTS = HERE.parents[3] / "shared" / "facts" / "robots"
FACT_FILES = {
    "kinova_gen3": "kinova_gen3_7dof",
    "kinova_gen3_2f85": "kinova_gen3_7dof_robotiq_2f_85",
    "kuka_lbr_iiwa7": "kuka_lbr_iiwa7",
    "kuka_lbr_iiwa14": "kuka_lbr_iiwa14",
    "kuka_lbr_med7": "kuka_lbr_med7",
    "kuka_lbr_med14": "kuka_lbr_med14",
}
ROBOTS = tuple(FACT_FILES)
SHEETS = {
    "franka_fr3": 17.8,
    "franka_panda": 17.8,
    "kinova_gen3_6dof": 7.2,
    "kinova_gen3_lite": 5.4,
    "ur3e": 11.2,
    "ur5e": 20.6,
    "ur10e": 33.5,
    "ur16e": 33.1,
    "xarm6": 12.2,
    "xarm7": 13.7,
}
"""Arms without shapes and drivers, for identification from recordings (see test_other_arms.py), and the mass of each
whole arm on its data sheet [kg]."""
RECORDED = tuple(SHEETS)
UR = (
    "0 {} 0 1.5707963267948966",
    "0 0 {} 0",
    "0 0 {} 0",
    "0 {} 0 1.5707963267948966",
    "0 {} 0 -1.5707963267948966",
    "0 {} 0 0",
)
DH = {
    "ur3e": [row.format(x) for row, x in zip(UR, (0.15185, -0.24355, -0.2132, 0.13105, 0.08535, 0.0921), strict=True)],
    "ur5e": [row.format(x) for row, x in zip(UR, (0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996), strict=True)],
    "ur10e": [row.format(x) for row, x in zip(UR, (0.1807, -0.6127, -0.57155, 0.17415, 0.11985, 0.11655), strict=True)],
    "ur16e": [row.format(x) for row, x in zip(UR, (0.1807, -0.4784, -0.36, 0.17415, 0.11985, 0.11655), strict=True)],
    "xarm6": [
        "0 0.267 0 -1.5707963267948966",
        "-1.38491787287 0 0.28948661454 0",
        "1.38491787287 0 0.0775 -1.5707963267948966",
        "0 0.3425 0 1.5707963267948966",
        "0 0 0.076 -1.5707963267948966",
        "0 0.097 0 0",
    ],
}
"""Published Denavit-Hartenberg parameters: offset of theta [rad], d [m], a [m], alpha [rad]. URs: "DH parameters for
calculations of kinematics and dynamics"; xArm6: UFACTORY, "Kinematic and Dynamic Parameters",
whose a of joint 2 is the hypotenuse of 284.5 and 53.5 mm."""
REFERENCE = json.loads((HERE / "reference_numbers.json").read_text())


def facts_of(name):
    path = FACTS / f"{FACT_FILES[name]}.json"
    if not path.is_file():
        pytest.skip("the collected robot data are not on this machine")
    return json.loads(path.read_text())


@pytest.fixture(scope="module", params=ROBOTS)
def robot(request):
    return load_robot(request.param)


def as_published(robot):
    """The robot with the angles of joint origins rounded as the published Gen3 files round them."""
    text = robot.urdf.replace('rpy="3.141592653589793 0 0"', 'rpy="3.1416 0 0"', 1)
    text = text.replace("1.5707963267948966", "1.5708")
    return load_robot(robot.name, text, snap_angles=False)


def dynamics_errors(robot, q, v, a, tau, gravity, mass_matrix, position, frame):
    model = robot.pin_model
    data = model.createData()
    inertia = pin.crba(model, data, np.array(q))
    inertia = np.triu(inertia) + np.triu(inertia, 1).T
    errors = {
        "tau": np.abs(pin.rnea(model, data, np.array(q), np.array(v), np.array(a)) - tau).max(),
        "gravity": np.abs(pin.computeGeneralizedGravity(model, data, np.array(q)) - gravity).max(),
        "mass_matrix": np.abs(inertia.ravel() - mass_matrix).max(),
    }
    pin.framesForwardKinematics(model, data, np.array(q))
    errors["position"] = np.abs(data.oMf[model.getFrameId(frame)].translation - position).max()
    return errors


def test_all_robots_are_available_and_load_without_complaint():
    assert set(available_robots()) == {*ROBOTS, *RECORDED}
    assert config_directories()
    for name in ROBOTS:
        robot = load_robot(name)
        assert robot.warnings == ()
        assert robot.protocol == ("kortex" if "kinova" in name else "fri")


def test_stored_reference_numbers(robot):
    stored = dict(REFERENCE[robot.name])
    frame, total = stored.pop("end_effector"), stored.pop("total_mass")
    masses = [link.inertial.mass for link in URDF.from_xml_string(robot.urdf).links if link.inertial is not None]
    assert sum(masses) == pytest.approx(total, abs=1e-9)
    # Numbers are stored with eight decimals. The published Gen3 angles are rounded; ours are exact.
    assert max(dynamics_errors(as_published(robot), **stored, frame=frame).values()) < 1e-8
    exact = dynamics_errors(robot, **stored, frame=frame)
    assert max(exact["tau"], exact["gravity"]) < 3e-4 and max(exact["mass_matrix"], exact["position"]) < 2e-5


@pytest.mark.parametrize("name", sorted(set(RECORDED) & set(REFERENCE)))
def test_recorded_arms_have_the_torques_of_their_sources(name):
    """Numbers from the vendors' files, with exact angles, by another program; the Panda's from its authors' functions.

    Those have identified coefficients, of which the published masses and inertias are one solution.
    """
    stored = dict(REFERENCE[name])
    frame, total = stored.pop("end_effector"), stored.pop("total_mass")
    robot = load_robot(name)
    errors = dynamics_errors(robot, **stored, frame=frame)
    assert errors.pop("position") < 1e-8
    assert max(errors.values()) < (0.1 if name == "franka_panda" else 1e-8)
    assert sum(inertia.mass for inertia in list(robot.pin_model.inertias)[1:]) == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("name", RECORDED)
def test_what_moves_has_most_of_the_mass_on_the_data_sheet(name):
    robot = load_robot(name)
    moving = sum(inertia.mass for inertia in list(robot.pin_model.inertias)[1:])
    assert 0.7 < moving / SHEETS[name] < 0.92
    assert robot.warnings == () and describe_overlapping_links(robot) == ""
    gravity = pin.computeGeneralizedGravity(robot.pin_model, robot.pin_model.createData(), robot.home)
    assert np.all(np.abs(gravity) < 0.5 * robot.limits.tau_held)


@pytest.mark.parametrize("name", DH)
def test_the_flange_is_where_published_dh_parameters_have_it(name):
    robot, q = load_robot(name), np.random.default_rng(4).uniform(-1.5, 1.5, 6)
    flange = pin.SE3.Identity()
    for angle, row in zip(q, DH[name], strict=True):
        offset, d, a, alpha = (float(word) for word in row.split())
        turn = pin.SE3(pin.utils.rotate("z", angle + offset), np.array([0.0, 0.0, d]))
        flange = flange * turn * pin.SE3(pin.utils.rotate("x", alpha), np.array([a, 0.0, 0.0]))
    data = robot.pin_model.createData()
    pin.framesForwardKinematics(robot.pin_model, data, q)
    ours = data.oMf[robot.pin_model.getFrameId("link_eef" if name == "xarm6" else "tool0")]
    np.testing.assert_allclose(ours.homogeneous, flange.homogeneous, atol=1e-7)


def test_identified_torques_of_the_panda_agree_with_the_inertias_that_franka_publishes_of_the_fr3():
    """The same arm but for what is inside: gravity torques differ by 2 Nm at most, less than the Panda's box allows."""
    panda, fr3 = load_robot("franka_panda"), load_robot("franka_fr3")
    data, other = panda.pin_model.createData(), fr3.pin_model.createData()
    radius, largest = panda.theta_box.radius[:70], 0.0
    for q in np.random.default_rng(1).uniform(panda.limits.q_lower, panda.limits.q_upper, (200, 7)):
        gap = pin.computeGeneralizedGravity(panda.pin_model, data, q)
        gap = np.abs(gap - pin.computeGeneralizedGravity(fr3.pin_model, other, q))
        regressor = pin.computeJointTorqueRegressor(panda.pin_model, data, q, np.zeros(7), np.zeros(7))
        assert np.all(gap <= np.abs(regressor) @ radius + 1e-9)
        largest = max(largest, gap.max())
    assert 0.5 < largest < 2.0


def test_shapes_of_a_ur5e_lie_in_the_box_of_the_ur3e():
    """Of which the vendor publishes no tensors but cylinders: those of a UR5e, scaled to its masses and sizes."""
    small, large = load_robot("ur3e"), load_robot("ur5e")
    radius = small.theta_box.radius[:60].reshape(6, 10)
    sizes = [[float(row.split()[1]) or float(row.split()[2]) for row in DH[robot.name]] for robot in (small, large)]
    differs = []
    for body, scale in enumerate(np.divide(*sizes) ** 2, start=1):
        mine, its = small.pin_model.inertias[body], large.pin_model.inertias[body]
        gap = np.abs(scale * mine.mass / its.mass * its.inertia - mine.inertia)
        assert np.all(gap[np.triu_indices(3)] <= radius[body - 1][[4, 5, 7, 6, 8, 9]])
        differs.append(gap.max() / mine.inertia.max())
    assert max(differs) > 1.0, "so the box is as wide as that"


def test_a_changed_inertia_would_be_seen(robot):
    stored = dict(REFERENCE[robot.name])
    frame, _ = stored.pop("end_effector"), stored.pop("total_mass")
    other = as_published(robot)
    other.pin_model.inertias[5].mass *= 1.0001
    assert dynamics_errors(other, **stored, frame=frame)["tau"] > 1e-6


def test_all_published_reference_vectors(robot):
    facts = facts_of(robot.name)
    published = as_published(robot)
    vectors = facts["reference_vectors"]["vectors"]
    assert len(vectors) == 6
    for x in vectors:
        numbers = (x["q"], x["qd"], x["qdd"], x["tau_rnea"], x["gravity"], x["mass_matrix_rowmajor"])
        frame = facts["end_effector_frame"]
        assert max(dynamics_errors(published, *numbers, x["ee_position_in_base"], frame).values()) < 1e-8
        exact = dynamics_errors(robot, *numbers, x["ee_position_in_base"], frame)
        assert exact["tau"] < 3e-4 and exact["position"] < 2e-5


def test_links_and_joints_are_the_published_ones(robot):
    facts = facts_of(robot.name)
    ours = URDF.from_xml_string(robot.urdf)
    for name, link in facts["links"].items():
        if link is None:
            continue
        inertial = ours.link_map[name].inertial
        assert inertial.mass == pytest.approx(link["mass"], rel=1e-12)
        assert inertial.origin.xyz == pytest.approx(link["com"], abs=1e-12)
        assert inertial.origin.rpy == pytest.approx(link["inertia_rpy"], abs=1e-12)
        for key, value in link["inertia_about_com"].items():
            assert getattr(inertial.inertia, key) == pytest.approx(value, rel=1e-12, abs=1e-15)
    assert list(robot.joint_names) == facts["joint_order"]
    for joint in facts["joints"]:
        if joint["name"] in ("lbr_floating_joint", "tool_frame_joint"):  # mass-less frames we do without
            continue
        mine = ours.joint_map[joint["name"]]
        assert (mine.parent, mine.child) == (joint["parent"], joint["child"])
        assert mine.origin.xyz == pytest.approx(joint["origin"]["xyz"], abs=1e-12)
        assert mine.origin.rpy == pytest.approx(joint["origin"]["rpy"], abs=1e-5)
        if joint["name"] in robot.joint_names:
            assert (mine.type, mine.axis) == (joint["type"], pytest.approx(joint["axis"]))


def test_limits_are_the_published_ones(robot):
    facts = facts_of(robot.name)
    alternative = facts["joint_limits_alternative"]
    limits = {joint["name"]: joint["limit"] for joint in facts["joints"] if joint["name"] in robot.joint_names}
    for i, name in enumerate(robot.joint_names):
        lower, upper = limits[name].get("lower", -np.inf), limits[name].get("upper", np.inf)
        # Settings hold four decimals, rounded towards the safe side.
        assert (
            lower <= robot.limits.q_lower[i] <= lower + 1e-4 if np.isfinite(lower) else robot.limits.q_lower[i] == lower
        )
        assert (
            upper - 1e-4 <= robot.limits.q_upper[i] <= upper if np.isfinite(upper) else robot.limits.q_upper[i] == upper
        )
        assert limits[name]["velocity"] - 1e-4 <= robot.limits.v_max[i] <= limits[name]["velocity"] + 1e-12
    torque = alternative.get("max_torque_nm", alternative.get("torque_nm_continuous_urdf"))["value"]
    assert robot.limits.tau_continuous == pytest.approx(torque)
    if "torque_nm_safety" in alternative:
        large, small = (alternative["torque_nm_safety"][name]["warning"] for name in ("large_J1_J4", "small_J5_J7"))
        torque = [large] * 4 + [small] * 3
    assert robot.limits.tau_max == pytest.approx(torque)
    if "acceleration_deg_s2" in alternative:
        published = np.deg2rad(alternative["acceleration_deg_s2"]["value"])
        assert np.all(robot.limits.a_max <= published) and np.all(robot.limits.a_max > 0.99 * published)


def test_sensors_and_priors(robot):
    is_gen3 = robot.name.startswith("kinova")
    assert robot.sensors.effort_meaning is (EffortMeaning.GEAR_SIDE if is_gen3 else EffortMeaning.LINK_SIDE)
    assert robot.sensors.effort_friction == (0.0 if is_gen3 else 1.0)
    assert robot.sensors.effort_sign == -1.0
    sensors = robot.sensors
    assert sensors.effort_gain_error == pytest.approx(np.full(7, 0.025))
    assert sensors.effort_relative_error - sensors.effort_gain_error == pytest.approx(np.full(7, 0.005))
    # Vibration counts in a sample, and hardly in a mean.
    assert np.all(sensors.effort_absolute_error >= 5.0 * sensors.effort_mean_error) and sensors.averaging_time == 0.5
    if is_gen3:
        assert np.rad2deg(robot.sensors.position_resolution) == pytest.approx([0.02] * 4 + [0.011] * 3)
        table = robot.prior("safe_id_table_1")
        assert table.target == "end_effector"
        assert (table.box.lower[0], table.box.upper[0]) == pytest.approx((1.2, 5.2))
        assert (table.box.lower[3], table.box.upper[3]) == pytest.approx((-1.0, -0.1))
    for prior in robot.payload_priors.values():
        assert prior.box.contains(prior.nominal) and is_physically_consistent(prior.nominal)
    assert robot.payload_prior.target == "payload" and robot.payload_prior.spheres
    assert robot.assumptions and "assumed" in " ".join(robot.assumptions)


def test_parameters(robot):
    names, units = parameter_names(robot), parameter_units(robot)
    assert len(names) == len(units) == len(set(names)) == robot.theta_nominal.size == 14 * robot.n
    assert (names[10], units[10]) == (f"{robot.joint_names[1]}.m", "kg")
    assert (names[-2], units[-2]) == (f"{robot.joint_names[-1]}.I_a", "kg m^2")
    radius = robot.theta_box.radius
    assert robot.theta_box.contains(robot.theta_nominal)
    assert radius[:60] == pytest.approx(0.05 * np.abs(robot.theta_nominal[:60]), abs=1e-12)
    assert np.all(robot.friction(robot.theta_box.lower)[:, :3] >= 0.0)
    assert np.all(robot.friction(robot.theta_nominal)[:, 2] <= 0.3)


def test_home_is_safe(robot, collision_pairs):
    """Bent elbow, clear of itself and the ground, half the torque left, away from the position limits."""
    model, q = robot.pin_model, robot.home
    data = model.createData()
    gravity = pin.computeGeneralizedGravity(model, data, q)
    assert np.all(np.abs(gravity) < 0.5 * robot.limits.tau_held)
    margin = np.minimum(q - robot.limits.q_lower, robot.limits.q_upper - q)
    assert np.all(margin > np.deg2rad(30))
    assert abs(q[3]) > np.deg2rad(45)
    pin.forwardKinematics(model, data, q)
    spheres = (*robot.spheres, *robot.payload_prior.spheres)
    centers = np.array([data.oMi[sphere.body].act(sphere.center) for sphere in spheres])
    radii = np.array([sphere.radius for sphere in spheres])
    first, second = collision_pairs(robot, spheres).T
    gaps = np.linalg.norm(centers[first] - centers[second], axis=1) - radii[first] - radii[second]
    assert gaps.min() > 0.02
    moving = np.array([sphere.body >= 2 for sphere in spheres])
    assert (centers[moving, 2] - radii[moving]).min() > 0.15


def test_tool_frame_points_out_of_the_flange():
    rotation, translation = tool_transform(load_robot("kinova_gen3_2f85"))
    assert translation == pytest.approx([0.0, 0.0, -0.061525])
    assert rotation == pytest.approx(np.diag([1.0, -1.0, -1.0]), abs=1e-12)
    rotation, translation = tool_transform(load_robot("kuka_lbr_iiwa14"))
    assert translation == pytest.approx([0.0, 0.0, 0.035])
    assert rotation == pytest.approx(np.eye(3))


def test_closing_the_gripper_stays_inside_the_box():
    """The published gripper with its joints at 0 to 0.8 rad, against the box of the last body."""
    robot = load_robot("kinova_gen3_2f85")
    path = FACTS.parent / "urdf" / "kinova_gen3_7dof_robotiq_2f_85.urdf"
    if not path.is_file():
        pytest.skip("the published URDF is not on this machine")
    model = pin.buildModelFromUrdf(str(path))
    signs = {"left_knuckle": 1, "right_knuckle": -1, "left_inner": 1, "right_inner": -1, "left_f": -1, "right_f": 1}
    joints = [name for name in model.names if name.startswith("robotiq")]
    assert len(joints) == 6
    for angle in np.linspace(0.0, 0.8, 9):
        q = pin.neutral(model)
        for name in joints:
            sign = next(value for key, value in signs.items() if key in name)
            q[model.joints[model.getJointId(name)].idx_q] = sign * angle
        locked = [model.getJointId(name) for name in joints]
        theta = pin.buildReducedModel(model, locked, q).inertias[7].toDynamicParameters()
        # Wherever the true parameters lie within 5 % of these, the box must hold them.
        box, part = robot.theta_box, robot.inertial_slice(7)
        assert np.all(box.lower[part] <= theta - 0.05 * np.abs(theta) + 1e-12)
        assert np.all(theta + 0.05 * np.abs(theta) - 1e-12 <= box.upper[part])


def test_joints_of_every_shipped_arm_can_be_made_elastic(robot):
    assert robot.elasticity is None
    elasticity = load_robot(robot.name, is_elastic=True).elasticity
    assert np.all((elasticity.stiffness >= 2500.0) & (elasticity.stiffness <= 40000.0))
    assert np.all(elasticity.damping > 0.0)
