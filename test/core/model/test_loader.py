"""Settings files: what they may say, and that every wrong entry is refused by name."""

import copy
import math

import numpy as np
import pytest
import yaml

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.loader import calibrated_settings, load_robot
from sysid_ros.core.model.robot import frame_placement
from sysid_ros.core.model.robot_files import available_robots, config_directories, find_settings

NAME = "kinova_gen3_2f85"
GOOD = yaml.safe_load((config_directories()[0] / f"{NAME}.yaml").read_text())
RANGE, ABOVE = {"lower": [-9.0] * 10, "upper": [9.0] * 10}, {"lower": [8.0] * 10, "upper": [9.0] * 10}
URDF = (config_directories()[0].parent / "urdf" / f"{NAME}.urdf").read_text()


@pytest.fixture
def load(tmp_path):
    def load_changed(path, value):
        """Loads the settings with the entry at the dotted path replaced (deleted for ``...``)."""
        settings = copy.deepcopy(GOOD)
        *parents, last = path.split(".")
        place = settings
        for key in parents:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
        file = tmp_path / "changed.yaml"
        file.write_text(yaml.safe_dump(settings, sort_keys=False))
        return load_robot(file, URDF)

    return load_changed


def test_a_file_of_ones_own(load):
    robot = load("rated_payload", 1.0)
    assert (robot.name, robot.rated_payload, robot.n) == ("changed", 1.0, 7)
    assert np.array_equal(robot.theta_nominal, load_robot(NAME).theta_nominal)


def test_a_peak_above_the_urdf_needs_a_continuous_limit(load):
    both = load("joints.joint_5", {"home": 0.0, "acceleration": 5.0, "torque": 25.0, "continuous_torque": 8.0}).limits
    assert (both.tau_max[4], both.tau_continuous[4]) == (25.0, 8.0)
    one = load("joints.joint_5", {"home": 0.0, "acceleration": 5.0}).limits
    assert one.tau_max[4] == one.tau_continuous[4] == 9.0
    with pytest.raises(ParameterOutOfRange, match=r"joint_5.torque 25.0: .*at most 9 \[Nm\].*continuous_torque"):
        load("joints.joint_5", {"home": 0.0, "acceleration": 5.0, "torque": 25.0})


def test_limits_may_be_tightened_only(load):
    weaker = load("joints.joint_1.torque", 20.0).limits
    assert weaker.tau_max[0] == weaker.tau_continuous[0] == 20.0
    assert load("joints.joint_1.position", [-1.0, 1.5]).limits.q_upper[0] == 1.5
    assert load("joints.joint_1.velocity", ...).limits.v_max[0] == 1.3963
    with pytest.raises(ParameterOutOfRange, match=r"joint_1.continuous_torque 40.0: expected 1e-06 to 39 \[Nm\]"):
        load("joints.joint_1.continuous_torque", 40.0)
    with pytest.raises(ParameterOutOfRange, match=r"joint_2.position\[1\] 2.5: expected -2.24 to 2.24 \[rad\]"):
        load("joints.joint_2.position", [-1.0, 2.5])


def test_scientific_notation_without_a_point_is_a_number(load, tmp_path):
    assert load("sensors.stamp_jitter", "1e-4").sensors.stamp_jitter == 1e-4


def test_order_of_the_file_does_not_matter_but_order_of_the_joints_does(load):
    reordered = load("friction", dict(reversed(GOOD["friction"].items())))
    assert np.array_equal(reordered.theta_nominal, load_robot(NAME).theta_nominal)
    said = "are not one chain: on the path to 'joint_7' they come as joint_1, .*, joint_7; name them in this order"
    with pytest.raises(ModelError, match=said):
        load("joints", dict(reversed(GOOD["joints"].items())))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("joints.joint_8", {"home": 0, "acceleration": 1}, "invalid joint 'joint_8': .*joint_1, joint_2"),
        ("friction.joint_8", {"nominal": [0] * 4}, "invalid joint 'joint_8'"),
        ("friction.joint_7", ..., r"friction.joint_7 None: expected a mapping \(it is missing\)"),
        ("friction.joint_1.nominal", [0.5, 1.0, 0.25], "a list of 4 numbers"),
        ("friction.joint_1.radius", [0.6, 0, 0, 0], "joint_1.radius .* at most nominal for F_c"),
        ("friction.joint_1.radius", [-0.1, 0, 0, 0], r"radius\[0\] -0.1"),
        ("friction.joint_1.damping", 1.0, "joint_1.damping 1.0: expected no setting of that name"),
        ("joints", {}, "joints .*at least one joint"),
        ("joints", ..., "changed.yaml.joints None"),
        ("joints.joint_1.home", ..., "joint_1.home None"),
        ("joints.joint_4.home", 2.6, r"joint_4.home 2.6: expected -2.57 to 2.57 \[rad\]"),
        ("joints.joint_1.home", math.nan, "joint_1.home nan"),
        ("joints.joint_1.acceleration", ..., "joint_1.acceleration None"),
        ("joints.joint_1.acceleration", 0.0, "joint_1.acceleration 0.0"),
        ("joints.joint_1.velocity", "fast", "joint_1.velocity 'fast'"),
        ("joints.joint_1.velocity", True, "joint_1.velocity True"),
        ("joints.joint_1.torqe", 10.0, "joint_1.torqe 10.0: expected no setting of that name"),
        ("joints.joint_2.position", [1.0, -1.0], "joint_2.position .*lower below upper"),
        ("gravity", [0.0, -9.81], "gravity .*a list of 3 numbers"),
        ("gravity", [0.0, 0.0, -981.0], r"gravity\[2\] -981.0: expected -30 to 30"),
        ("frames.tol", "x", "frames.tol 'x': expected no setting of that name; known: base, fl"),
        ("inertial_uncertainty.relative", 5.0, r"relative 5.0: expected 0 to 1 \[-\]"),
        ("inertial_uncertainty.pseudo_inertia", 1.0, r"pseudo_inertia 1.0: expected 0 to 0.9"),
        ("inertial_uncertainty.pseudo_inertia", 0.2, "absent where a gripper has states"),
        ("inertial_uncertainty.absolute", {"joint_9": [0] * 10}, "invalid joint 'joint_9'"),
        ("inertial_uncertainty.absolute.joint_7", [0] * 9, "a list of 10 numbers"),
        ("inertial_uncertainty.range", {"joint_9": {}}, "invalid joint 'joint_9'"),
        ("inertial_uncertainty.range", {"joint_1": RANGE}, "absent where a gripper has states"),
        ("inertial_uncertainty.range", {"joint_1": ABOVE}, "body of the URDF between lower and"),
        ("sensors.effort_meaning", "current", "one of motor_side, gear_side, link_side"),
        ("sensors.effort_sign", 0.5, "effort_sign 0.5: expected 1 or -1"),
        ("sensors.effort_relative_error", -0.1, "effort_relative_error -0.1"),
        ("sensors.effort_relative_error", [0.1, 0.1], "a list of 7 numbers"),
        ("sensors.effort_is_held", "yes", "effort_is_held 'yes': expected true or false"),
        ("sensors.position_resolution", ..., "position_resolution None"),
        ("sensors.noise", 0.1, "sensors.noise 0.1: expected no setting of that name"),
        ("rated_payload", -1.0, "rated_payload -1.0"),
        ("payload_prior", "nothing", "one of held_object, at_fingertips, safe_id_table_1"),
        ("payload_priors.held_object.mass", [0.0, math.inf], r"held_object.mass\[1\] inf"),
        ("payload_priors.safe_id_table_1.upper", [1.0], "safe_id_table_1.upper .*a list of 10 numbers"),
        ("spheres.elbow", [[0, 0, 0, 1]], "spheres.elbow 'elbow': expected a link; this robot"),
        ("spheres.bracelet_link", 3, "spheres.bracelet_link 3: expected a list of rows"),
        ("never_touch", [["base_link"]], "never_touch .*pairs of the links world, base_link"),
        ("never_touch", 3, "never_touch 3"),
        ("assumptions", "none", "assumptions 'none': expected a list of sentences"),
        ("rated_paylod", 1.0, "changed.yaml.rated_paylod 1.0: expected no setting of that name"),
        ("urdf", 3, "urdf 3: expected a text"),
    ],
)
def test_wrong_settings_are_refused_by_name(load, path, value, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        load(path, value)


def test_frames_must_be_links_of_the_base_and_of_the_last_body(load):
    with pytest.raises(ModelError, match="frame 'base' is not a link fixed to the world; .* world, base_link"):
        load("frames.base", "base")
    with pytest.raises(ModelError, match="frame 'forearm_link' is not a link fixed to the last body"):
        load("frames.tool", "forearm_link")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(
        ModelError, match="robot 'gen4' is unknown; known are .*kinova_gen3.*or give a .yaml or .urdf file"
    ):
        load_robot("gen4")
    with pytest.raises(ModelError, match="cannot read .*missing.yaml"):
        load_robot(tmp_path / "missing.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1")
    with pytest.raises(ModelError, match="cannot read .*broken.yaml"):
        load_robot(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ParameterOutOfRange, match="list.yaml .1.: expected a mapping"):
        load_robot(tmp_path / "list.yaml")
    (tmp_path / "nowhere.yaml").write_text("urdf: nowhere.urdf")
    with pytest.raises(ModelError, match="cannot read the URDF that .*nowhere.yaml names"):
        load_robot(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ModelError, match="cannot read "):
        load_robot(tmp_path / "binary.yaml")


def test_files_of_other_kinds_are_no_robots():
    assert "payloads" not in available_robots() and NAME in available_robots()


def test_settings_are_found_in_an_install_prefix(tmp_path, monkeypatch):
    share = tmp_path / "share" / "sysid_ros"
    for folder in ("config", "urdf"):
        (share / folder).mkdir(parents=True)
    (share / "config" / "mine.yaml").write_text(yaml.safe_dump({**GOOD, "urdf": "../urdf/mine.urdf"}, sort_keys=False))
    (share / "urdf" / "mine.urdf").write_text(URDF)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert "mine" in available_robots()
    assert load_robot("mine").n == 7


def test_result_cannot_be_changed():
    robot = load_robot(NAME)
    for array in (robot.theta_nominal, robot.home, robot.limits.tau_max, robot.payload_prior.box.lower):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    with pytest.raises(TypeError):
        robot.payload_priors["x"] = robot.payload_prior


def test_frames():
    robot = load_robot(NAME)
    assert frame_placement(robot, "bracelet_link")[1] == pytest.approx(np.zeros(3))
    with pytest.raises(ModelError, match="frame 'forearm_link' is not fixed to the last body .* joint_7"):
        frame_placement(robot, "forearm_link")
    with pytest.raises(ModelError, match="frame 'hand' is unknown; this robot has .*end_effector_link"):
        frame_placement(robot, "hand")


@pytest.mark.parametrize(
    ("name", "arm"),
    [("panda", "franka_panda"), ("fer", "franka_panda"), ("franka_fer", "franka_panda"), ("fr3", "franka_fr3")]
    + [(name, f"kinova_{name}") for name in ("gen3", "gen3_6dof", "gen3_lite")]
    + [(name, name) for name in ("ur3e", "ur16e", "xarm6")],
)
def test_arms_are_known_by_the_names_people_type(name, arm):
    assert find_settings(name).stem == arm


@pytest.mark.parametrize("name", ["kuka_lbr_iiwa14", "lbr_iiwa14", "iiwa14"])
def test_an_lbr_is_known_by_its_short_names(name):
    assert load_robot(name).name == "kuka_lbr_iiwa14"
    with pytest.raises(ModelError, match="'lbr_iiwa15' is unknown; known are"):
        load_robot("lbr_iiwa15")


def test_joints_are_elastic_where_the_file_says_so(load):
    assert load("elasticity.is_elastic", True).elasticity.stiffness.shape == (7,)
    assert load("elasticity.is_elastic", False).elasticity is None
    assert load("elasticity", ...).elasticity is None
    for key, value in (("position_side", "gear"), ("stiffness", 0.0), ("stiffness", [1e4] * 6), ("play", 0.1)):
        with pytest.raises(ParameterOutOfRange, match=f"elasticity.{key}"):
            load(f"elasticity.{key}", value)


def test_a_motor_of_an_elastic_joint_has_inertia(load, tmp_path):
    massless = copy.deepcopy(GOOD)
    massless["friction"]["joint_3"] = {"nominal": [0.5, 1.0, 0.0, 0.0], "radius": [0.0] * 4}
    file = tmp_path / "massless.yaml"
    file.write_text(yaml.safe_dump(massless))
    with pytest.raises(ParameterOutOfRange, match="is_elastic True: expected false where a motor has no armature"):
        load_robot(file, URDF, is_elastic=True)
    del massless["elasticity"]
    file.write_text(yaml.safe_dump(massless))
    with pytest.raises(ParameterOutOfRange, match="elasticity None: expected a mapping"):
        load_robot(file, URDF, is_elastic=True)


def test_an_arm_that_is_known_within_a_share():
    settings, share = load_robot("ur5e"), 0.2
    robot = load_robot("ur5e", known_within=share)
    assert settings.inertia_order is None and robot.inertia_order is not None
    assert robot.inertia_order.share == share and np.array_equal(robot.theta_nominal, settings.theta_nominal)
    radius, nominal = robot.friction(robot.theta_box.radius), robot.friction(robot.theta_nominal)
    assert radius[:, :3] == pytest.approx(share * nominal[:, :3])
    assert radius[:, 3] == pytest.approx(settings.friction(settings.theta_box.radius)[:, 3])
    masses = [robot.inertial_slice(body).start for body in range(1, robot.n + 1)]
    assert robot.theta_box.radius[masses] == pytest.approx(share * robot.theta_nominal[masses])
    # What is proven of one is not proven of the other.
    assert robot_hash(robot) != robot_hash(settings)
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(ParameterOutOfRange, match="ur5e.yaml"):
            load_robot("ur5e", known_within=wrong)
    with pytest.raises(ParameterOutOfRange, match="known_within 0.2: expected a settings file"):
        load_robot(config_directories()[0].parent / "urdf" / "ur5e.urdf", known_within=0.2)


def test_a_name_may_say_that_the_joints_are_elastic(tmp_path):
    assert load_robot("kinova_gen3").elasticity is None
    elastic = load_robot("kinova_gen3:elastic")
    assert elastic.name == "kinova_gen3" and elastic.elasticity is not None
    np.testing.assert_array_equal(
        elastic.elasticity.stiffness, load_robot("kinova_gen3", is_elastic=True).elasticity.stiffness
    )
    assert load_robot("iiwa7:elastic").elasticity is not None
    assert load_robot("kinova_gen3:elastic", is_elastic=False).elasticity is None
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**GOOD, "elasticity": {**GOOD["elasticity"], "is_elastic": False}}))
    assert load_robot(file, URDF).elasticity is None
    assert load_robot(f"{file}:elastic", URDF).elasticity is not None
    with pytest.raises(ParameterOutOfRange, match="elasticity None: expected a mapping that says how elastic"):
        load_robot("ur5e:elastic")
    with pytest.raises(ParameterOutOfRange, match="payload prior 'soft': expected one of kinova_gen3.yaml: tool, .*"):
        load_robot("kinova_gen3:soft")
    urdf = tmp_path / "mine.urdf"
    urdf.write_text(URDF)
    with pytest.raises(ParameterOutOfRange, match="does not say how elastic"):
        load_robot(f"{urdf}:elastic")


def test_a_name_may_say_which_payload_prior_counts(tmp_path):
    small = load_robot("iiwa7:compact_tool")
    assert (small.name, small.payload_prior.name, small.elasticity) == ("kuka_lbr_iiwa7", "compact_tool", None)
    assert small.payload_prior.box.is_subset_of(load_robot("iiwa7").payload_prior.box)
    assert robot_hash(small) != robot_hash(load_robot("iiwa7"))
    for name in ("iiwa7:elastic:compact_tool", "iiwa7:compact_tool:elastic"):
        both = load_robot(name)
        assert both.elasticity is not None and robot_hash(both) == robot_hash(
            load_robot("iiwa7", is_elastic=True, prior="compact_tool")
        )
    assert load_robot("iiwa7:compact_tool", prior="tool").payload_prior.name == "tool"
    file = tmp_path / "a:b" / "mine.yaml"  # colons of a path are its own
    file.parent.mkdir()
    file.write_text(
        yaml.safe_dump(
            {**GOOD, "payload_priors": {**GOOD["payload_priors"], "mine": GOOD["payload_priors"]["held_object"]}}
        )
    )
    assert load_robot(f"{file}:mine", URDF).payload_prior.name == "mine"
    assert load_robot(file, URDF).payload_prior.name != "mine"
    with pytest.raises(ModelError, match="names two payload priors, tool and compact_tool; expected one"):
        load_robot("iiwa7:tool:compact_tool")
    with pytest.raises(ParameterOutOfRange, match="payload prior 'tool': expected none: mine.urdf states no"):
        load_robot("mine.urdf:tool", URDF)


def test_settings_with_a_calibration_of_an_elastic_arm_say_that_it_is_elastic():
    assert "is_elastic: false" in calibrated_settings("kinova_gen3", "arm.urdf", "calibration.yaml")
    assert "is_elastic: true" in calibrated_settings("kinova_gen3:elastic", "arm.urdf", "calibration.yaml")
    kept = calibrated_settings("iiwa7:elastic:compact_tool", "arm.urdf", "calibration.yaml")
    assert yaml.safe_load(kept)["payload_prior"] == "compact_tool" and "is_elastic: true" in kept
