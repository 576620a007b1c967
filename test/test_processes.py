"""The table of processes, and that the launch file and the runner start the same from it."""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ros_launch import RosLaunch

from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.cli.identify import client_command
from sysid_ros.cli.parse_suites import identify_parser
from sysid_ros.cli.suite import Suite, node_command, suite_environment
from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE, create_key_file
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.processes import (
    ARGUMENTS,
    EMULATED,
    ENCLAVE_VARIABLE,
    IDENTIFY,
    SPACE,
    STOP_TIMEOUT,
    resolve,
    resolve_space,
)
from sysid_ros.resources import resource, share_directories
from sysid_ros.ros.environment import LOOPBACK_PROFILE, PROFILE_VARIABLE, Network, network_variables

ROOT = Path(__file__).parents[1]


def test_defaults_start_every_process_with_existing_files():
    started = resolve({})
    assert [one.process for one in started] == list(IDENTIFY)
    for one in started:
        assert all(path.is_file() for path in one.parameter_files)
        assert one.parameters["model"] == "kinova_gen3_2f85"
        assert one.parameters["use_sim_time"] is False


def test_arguments_reach_the_nodes_that_take_them():
    started = {one.process.executable: one for one in resolve({"model": "kuka_lbr_med7", "record": "false"})}
    assert started["identification"].parameters["record"] is False
    assert "record" not in started["estimator"].parameters
    assert all(one.parameters["model"] == "kuka_lbr_med7" for one in started.values())
    assert resolve({"robot_name": "/left/"})[0].namespace == "left"
    real = {"model": "lbr_iiwa14", "mode": "hardware", "robot_ip": "192.170.10.2"}
    driver = resolve(real)[0]
    assert driver.process.executable == "arm_driver" and {name: driver.parameters[name] for name in real} == real


@pytest.mark.parametrize(("text", "parameters"), [("", {}), ("true", {"proves_throughout": True})])
def test_plans_are_proven_throughout_where_that_is_said(text, parameters):
    """Where nothing is said a file of parameters may say it."""
    (planner,) = (one for one in resolve({"proves_throughout": text}) if one.process.executable == "safe_planner")
    assert {name: value for name, value in planner.parameters.items() if name == "proves_throughout"} == parameters


def test_a_file_of_the_users_own_wins_over_those_of_the_mode(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("/**/arm_driver:\n  ros__parameters: {port_id: 30201}\n")
    started = resolve({"parameters_file": str(own)})
    assert all(one.parameter_files[-1] == own and len(one.parameter_files) == 2 for one in started)
    files = [word for word in node_command(started[0], tmp_path / "runner.yaml") if word.endswith(".yaml")]
    assert [Path(name).name for name in files] == ["mock.yaml", "mine.yaml", "runner.yaml"]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"parameters_file": "/no/such.yaml"}, ParameterOutOfRange, "an existing YAML file of ROS parameters"),
        (
            {"modell": "x"},
            SysidError,
            r"'modell' is unknown \(did you mean model or mode\?\); there are model, robot_name",
        ),
        ({"mode": "dream"}, ParameterOutOfRange, "mode 'dream': expected one of mock, emulated, hardware"),
        ({"record": "yes"}, ParameterOutOfRange, "record 'yes': expected one of true, false"),
        ({"mode": "hardware"}, ParameterOutOfRange, "robot_ip '': expected the address of the arm"),
        ({"model": "kinova_gen4"}, ModelError, "robot 'kinova_gen4' is unknown; known are .*kinova_gen3, "),
        ({"model": "no/such.yaml"}, ModelError, "cannot read the robot settings no/such.yaml: there is no such file"),
        ({"port_id": "x"}, ParameterOutOfRange, "port_id 'x': expected a number"),
        (
            {"mode": "ros2_control", "payload": "1"},
            ParameterOutOfRange,
            "payload '1': expected nothing, with a real",
        ),
    ],
)
def test_wrong_arguments_are_refused(values, error, message):
    with pytest.raises(error, match=message):
        resolve(values)


def test_an_emulated_controller_outlives_its_driver():
    ends_last = {one.process.executable: one.process.ends_last for one in resolve({"mode": "emulated"})}
    assert [name for name, is_last in ends_last.items() if is_last] == ["arm_emulator"]


def test_parameter_files_are_for_nodes_that_exist():
    names = {process.executable for process in (*IDENTIFY, *EMULATED)}
    for path in (ROOT / "config" / "nodes").glob("*.yaml"):
        content = yaml.safe_load(path.read_text()) or {}
        assert {key.rsplit("/", 1)[-1] for key in content} <= names


def test_missing_resource_names_where_it_was_looked_for():
    assert resource("config/payloads.yaml").is_file()
    with pytest.raises(SysidError, match=f"config/dream.yaml is not in {ROOT}"):
        resource("config/dream.yaml")
    assert share_directories()[0] == ROOT


def test_installed_files_are_found_without_a_checkout(monkeypatch, tmp_path):
    installed = tmp_path / "share" / "sysid_ros" / "config"
    installed.mkdir(parents=True)
    (installed / "payloads.yaml").write_text("")
    monkeypatch.setattr("sysid_ros.resources.__file__", str(tmp_path / "lib" / "sysid_ros" / "resources.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nowhere"))
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert resource("config/payloads.yaml") == installed / "payloads.yaml"


def test_own_parameters_are_exact_and_win(tmp_path):
    started = resolve({"robot_name": "left"})[:1]
    suite = Suite(started, None, tmp_path, {"ROS_DOMAIN_ID": "1"}, {"arm_driver": {"payload": "1.81", "seed": 3}})
    path = suite._write_parameters(started[0])
    written = yaml.safe_load(path.read_text())["/**/arm_driver"]["ros__parameters"]
    assert (written["payload"], written["seed"], written["mode"]) == ("1.81", 3, "mock")
    command = node_command(started[0], path)
    assert command[-1] == str(path)
    assert command[1:6] == ["-m", "sysid_ros.nodes.arm_driver", "--ros-args", "-r", "__ns:=/left"]


def test_client_gets_the_goal_and_the_namespace(tmp_path):
    options = identify_parser().parse_args(["--seed", "5", "--namespace", "left", "--max-motion-time", "9"])
    command = client_command(options, tmp_path)
    assert "--seed=5" in command and "--max-motion-time=9.0" in command
    assert command[-3:] == ["--ros-args", "-r", "__ns:=/left"]


@pytest.mark.parametrize(
    ("words", "is_terminal", "tare"),
    [
        ("", False, "first"),
        ("--tare none", True, "none"),
        ("--mode hardware --robot-ip 10.0.0.1", True, "ask"),
        ("--mode hardware --robot-ip 10.0.0.1", False, "none"),
        ("--mode emulated", True, "none"),
        ("--mode monitor_only", True, "none"),
    ],
)
def test_a_tare_comes_first_where_the_hand_is_or_can_be_emptied(tmp_path, monkeypatch, words, is_terminal, tare):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))
    command = client_command(identify_parser().parse_args(words.split()), tmp_path)
    assert f"--tare={tare}" in command and ("--grasp=dumbbell_4lb" in command) == (tare == "first")


def test_an_arm_that_is_calibrated_needs_no_tare(tmp_path, monkeypatch):
    calibrated = SimpleNamespace(calibration="known")
    monkeypatch.setattr("sysid_ros.cli.identify.load_robot", lambda model: calibrated)
    command = client_command(identify_parser().parse_args([]), tmp_path)
    assert "--tare=none" in command


@pytest.fixture
def checked_launch(monkeypatch):
    """Executes launch files: returns the nodes of one for what is typed."""
    ros = RosLaunch(monkeypatch)
    return lambda name, **typed: ros.run(ROOT / "launch" / f"{name}.launch.py", typed)


@pytest.fixture
def launch(monkeypatch, checked_launch):
    """The same without the checks, which take a second."""
    monkeypatch.setattr("sysid_ros.start_check.check_suite", lambda *_: {})
    monkeypatch.setattr("sysid_ros.start_check.require_movable", lambda *_, **__: None)
    return partial(checked_launch, "identify")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload": "10"}, "payload '10': expected inside the payload prior 'held_object' of kinova_gen3_2f85"),
        ({"gripper": "ajar"}, "ajar"),
        ({"mode": "hardware"}, "launch argument robot_ip '': expected .* with mode:=hardware"),
        ({"robot_ip": "10.0.0.1"}, "robot_ip '10.0.0.1': .*no connection to kinova_gen3_2f85 with mode:=mock"),
        ({"robot_name": "a b"}, "launch argument robot_name 'a b': expected letters"),
        ({"model": "ur5e", "mode": "emulated"}, "mode of ur5e 'emulated': expected mock, ros2_control or"),
        ({"mode": "ros2_control"}, "torque_command 'unset'"),
        ({"model": "ur5e"}, r"model:=ur5e: no motion of 'ur5e' can be certified[^$]*launch.py works with kinova_gen3"),
    ],
)
def test_launch_refuses_what_cannot_work_before_a_process_starts(checked_launch, monkeypatch, given, said):
    monkeypatch.setattr("sysid_ros.start_check.available_robots", lambda: ("kinova_gen3_2f85",))
    with pytest.raises(SysidError, match=said):
        checked_launch("identify", **given)


def test_launch_starts_arms_that_others_move_and_those_led_by_hand(checked_launch, tmp_path):
    guided = tmp_path / "guided.yaml"
    guided.write_text("/**/arm_driver:\n  ros__parameters: {allows_guiding: true}\n")
    for given in ({"mode": "monitor_only"}, {"parameters_file": str(guided)}):
        assert checked_launch("identify", model="ur5e", **given, publish_tf="false")


def test_launch_says_which_extra_is_missing(checked_launch, monkeypatch):
    monkeypatch.setattr("sysid_ros.start_check.find_spec", lambda name: None if name == "mujoco" else object())
    with pytest.raises(SysidError, match=r"install it with: pip install 'sysid_ros\[sim\]'"):
        checked_launch("identify")


def test_space_launch_file_and_runner_start_the_same(checked_launch, tmp_path):
    values = {"robot_name": "orbit", "speed": "5"}
    started = resolve_space(values)
    assert [one.process for one in started] == list(SPACE)
    nodes = checked_launch("space_robot", **values)
    for node, one in zip(nodes, started, strict=True):
        assert (node.executable, node.namespace) == (one.process.executable, "orbit")
        path = Suite([one], None, tmp_path, {})._write_parameters(one)
        own = yaml.safe_load(path.read_text())[f"/**/{node.executable}"]["ros__parameters"]
        assert json.dumps(node.parameters[-1]) == json.dumps(own)
    publisher, rviz = checked_launch("space_robot", **values, launch_rviz="true")[len(SPACE) :]
    assert publisher.executable == "robot_state_publisher"
    assert Path(rviz.arguments[1]).is_file()
    # A robot with a driver of its own needs no simulated one.
    assert [one.process for one in resolve_space({"mode": "external"})] == list(SPACE[1:])
    with pytest.raises(ParameterOutOfRange, match="speed 'fast': expected a number"):
        resolve_space({"speed": "fast"})
    with pytest.raises(SysidError, match="'payload' is unknown"):
        resolve_space({"payload": "1"})


def test_launch_file_and_runner_start_the_same(launch, tmp_path):
    values = {"robot_name": "left", "model": "kuka_lbr_iiwa7", "publish_tf": "false"}
    nodes = launch(**values)
    started = resolve(values)
    assert [node.executable for node in nodes] == [one.process.executable for one in started]
    for node, one in zip(nodes, started, strict=True):
        *files, own = node.parameters
        assert files == [str(path) for path in one.parameter_files]
        path = Suite([one], None, tmp_path, {})._write_parameters(one)
        assert own == yaml.safe_load(path.read_text())[f"/**/{node.executable}"]["ros__parameters"]
        assert json.dumps(own) == json.dumps(dict(one.parameters))
        assert (node.package, node.namespace) == ("sysid_ros", "left")


WITH_KEY = ("arm_driver", "safe_planner", "estimator", "identification")


def test_launch_ends_with_what_a_motion_needs_and_starts_the_rest_again(launch, monkeypatch, tmp_path):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(create_key_file(tmp_path / "key")))
    nodes = {node.executable: node for node in launch(publish_tf="false")}
    again = {name for name, node in nodes.items() if getattr(node, "respawn", False)}
    assert again == {"monitor", "identifiability"}
    for name, node in nodes.items():
        assert (name in again) != hasattr(node, "on_exit")
        if name not in again:
            node.on_exit(SimpleNamespace(returncode=0), SimpleNamespace(is_shutdown=True))
            with pytest.raises(SysidError, match=f"{name} ended with exit code -9, and the suite needs it"):
                node.on_exit(SimpleNamespace(returncode=-9), SimpleNamespace(is_shutdown=False))
        assert float(node.sigterm_timeout) == STOP_TIMEOUT
        # Where the user has a key for all, the others must not inherit it.
        assert bool(node.additional_env[KEY_FILE_VARIABLE]) == (name in WITH_KEY)


def test_the_driver_alone_publishes_the_description(launch):
    publisher = launch(launch_rviz="true")[-2]
    assert publisher.remappings == [("robot_description", "~/robot_description")]
    assert "<robot" in publisher.parameters[0]["robot_description"].evaluate(None)


@pytest.mark.parametrize(
    ("given", "is_ours"),
    [
        ({}, True),
        ({"mode": "hardware", "robot_ip": "10.0.0.1"}, True),
        ({"mode": "emulated_ros2_control"}, True),
        ({"mode": "ros2_control"}, False),
        ({"mode": "monitor_only"}, False),
        ({"mode": "ros2_control", "publish_tf": "true"}, True),
        ({"publish_tf": "false"}, False),
    ],
)
@pytest.mark.parametrize("launch_rviz", ["true", "false"])
def test_frames_have_one_publisher_with_and_without_rviz(launch, given, is_ours, launch_rviz):
    """Those who run the arm publish its frames, and one who has it run by us is not asked for a second one."""
    nodes = launch(**given, launch_rviz=launch_rviz)
    assert [node.executable for node in nodes].count("robot_state_publisher") == is_ours
    assert [node.executable for node in nodes].count("rviz2") == (launch_rviz == "true")


def test_two_arms_have_frames_of_their_own(launch):
    """Links, markers, wrenches, obstacles and RViz all have the same prefix; by default they have none."""
    nodes = {node.executable: node for node in launch(launch_rviz="true")}
    assert nodes["robot_state_publisher"].parameters[0]["frame_prefix"] == ""
    assert "TF Prefix" not in Path(nodes["rviz2"].arguments[1]).read_text()
    given = {"launch_rviz": "true", "tf_prefix": "left/", "robot_name": "left"}
    nodes = {node.executable: node for node in launch(**given)}
    assert nodes["robot_state_publisher"].parameters[0]["frame_prefix"] == "left/"
    assert {name for name, node in nodes.items() if dict(node.parameters[-1]).get("tf_prefix") == "left/"} == {
        "monitor", "safe_planner", "estimator", "identification"
    }  # fmt: skip
    view = yaml.safe_load(Path(nodes["rviz2"].arguments[1]).read_text())["Visualization Manager"]
    assert view["Global Options"]["Fixed Frame"] == "left/world"
    assert [one["TF Prefix"] for one in view["Displays"] if "RobotModel" in one["Class"]] == ["left"]
    Path(nodes["rviz2"].arguments[1]).unlink()


def test_how_an_arm_is_reached_goes_to_those_that_need_it_and_only_where_it_is_given(tmp_path):
    values = {"model": "lbr_iiwa14", "mode": "emulated", "fri_version": "2.5", "port_id": "30201", "payload": "1.5"}
    started = {one.process.executable: one.parameters for one in resolve(values)}
    for name in ("arm_driver", "arm_emulator"):
        given = {key: started[name][key] for key in ("fri_version", "port_id", "payload")}
        assert given == {"fri_version": "2.5", "port_id": 30201, "payload": "1.5"}
        assert not {"port", "username", "password_file"} & set(started[name])
    assert "fri_version" not in started["estimator"]
    assert not {"fri_version", "port_id", "payload"} & set(resolve({})[0].parameters)
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    secret.chmod(0o600)
    parameters = ArmDriverParameters(model="kinova_gen3", mode="hardware", password_file=str(secret))
    assert parameters.kortex_settings.password == "geheim" and "geheim" not in repr(parameters)
    secret.chmod(0o644)
    with pytest.raises(ParameterOutOfRange, match="'password_file' .*only its owner may read.*chmod 600"):
        _ = parameters.kortex_settings


@pytest.mark.parametrize(
    ("given", "is_loopback"),
    [
        ({}, True),
        ({"mode": "emulated_ros2_control"}, True),
        ({"mode": "hardware", "robot_ip": "10.0.0.1"}, True),
        ({"mode": "ros2_control"}, False),
        ({"mode": "monitor_only"}, False),
        ({"mode": "ros2_control", "network": "loopback"}, True),
        ({"network": "lan"}, False),
    ],
)
def test_launch_and_runner_keep_the_same_runs_on_this_machine(launch, monkeypatch, tmp_path, given, is_loopback):
    """With the network of the user's environment nothing of it is changed, and that is said."""
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    monkeypatch.setenv(PROFILE_VARIABLE, "/the/users/own.xml")
    values = {argument.name: argument.default for argument in ARGUMENTS} | {**given, "launch_rviz": "true"}
    nodes = launch(**values)
    runner = suite_environment(tmp_path, None, values)
    for environment in (*(node.additional_env for node in nodes), runner):
        assert (environment.get(PROFILE_VARIABLE) == str(LOOPBACK_PROFILE)) == is_loopback
    assert all("ROS_DOMAIN_ID" not in node.additional_env for node in nodes)
    if not is_loopback:
        assert (runner["ROS_DOMAIN_ID"], runner[PROFILE_VARIABLE]) == ("7", "/the/users/own.xml")
        assert [name for name in nodes[-1].additional_env if name.startswith("ROS_")] == [ENCLAVE_VARIABLE]
        assert suite_environment(tmp_path, 9, values)["ROS_DOMAIN_ID"] == "9"


def test_another_middleware_is_kept_on_this_machine_by_its_discovery():
    here = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_STATIC_PEERS": ""}
    assert network_variables(Network.LOOPBACK, False, {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}) == here
    assert network_variables(Network.LAN, False, {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}) == {}
    assert PROFILE_VARIABLE in network_variables(Network.LOOPBACK, True, {"RMW_IMPLEMENTATION": "rmw_fastrtps_cpp"})


@pytest.mark.parametrize("middleware", [{}, {"RMW_IMPLEMENTATION": ""}, {"RMW_IMPLEMENTATION": "rmw_fastrtps_cpp"}])
def test_no_shared_memory_on_a_network_either_unless_the_user_has_chosen_transports(middleware):
    assert network_variables(Network.LAN, False, middleware) == {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}
    assert network_variables(Network.AUTO, True, middleware) == {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}
    for choice in (PROFILE_VARIABLE, "FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS"):
        assert network_variables(Network.LAN, False, {**middleware, choice: "the user's own"}) == {}


def test_the_emulated_controller_is_started_before_its_driver_and_only_where_it_is_wanted():
    for mode in ("mock", "emulated", "hardware"):
        names = [one.process.executable for one in resolve({"mode": mode, "robot_ip": "10.0.0.1"})]
        assert ("arm_emulator" in names) == (mode == "emulated")
        assert names.index("arm_driver") == (mode == "emulated")
