"""The one table of processes. The launch files and the runner both read it, so they cannot drift apart."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot_files import require_robot
from sysid_ros.drivers.modes import Mode
from sysid_ros.resources import PACKAGE, resource
from sysid_ros.ros.environment import Network, network_variables

ParameterValue = bool | int | float | str


def unknown_argument(name: str, valid_names: Sequence[str]) -> SysidError:
    """Return the error of a launch argument that does not exist, with the names that do and the nearest of them."""
    near = difflib.get_close_matches(name, valid_names, 2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return SysidError(f"launch argument '{name}' is unknown{hint}; there are {', '.join(valid_names)}")


class Spelling(Enum):
    """How arguments are typed, for messages: as launch arguments, or as options of a command."""

    LAUNCH = "{}:={}"
    OPTION = "--{} {}"

    def title(self, argument: str) -> str:
        """Return how a message calls an argument."""
        return f"launch argument {argument}" if self is Spelling.LAUNCH else f"--{argument.replace('_', '-')}"

    def pair(self, argument: str, value: str) -> str:
        """Return an argument with its value, as it is typed."""
        return self.value.format(argument if self is Spelling.LAUNCH else argument.replace("_", "-"), value)


@dataclass(frozen=True)
class Argument:
    """A launch argument.

    Attributes:
        name: Its name, as in ``model:=kinova_gen3``.
        default: Default value as text.
        description: What it does.
        choices: Allowed texts beside the empty one of an optional argument; empty allows any.
        kind: Type of its value as a node parameter.
        is_optional: Whether it may be empty, and then leaves to the nodes what their parameter files say.
        alias: Another name that it is known by; empty for none.
    """

    name: str
    default: str
    description: str
    choices: tuple[str, ...] = ()
    kind: type = str
    is_optional: bool = False
    alias: str = ""

    @property
    def allowed(self) -> tuple[str, ...]:
        """All allowed texts, the empty one of an optional argument too; empty allows any."""
        return ("", *self.choices) if self.choices and self.is_optional else self.choices

    def value(self, text: str, spelling: Spelling = Spelling.LAUNCH) -> ParameterValue:
        """The typed value of a text.

        Raises:
            ParameterOutOfRange: The text is not allowed.
        """
        if self.is_optional and not text:
            return ""
        if self.choices and text not in self.choices:
            raise ParameterOutOfRange(spelling.title(self.name), text, f"one of {', '.join(self.choices)}")
        try:
            return text == "true" if self.kind is bool else self.kind(text)
        except ValueError:
            raise ParameterOutOfRange(spelling.title(self.name), text, "a number") from None


_SWITCH = ("true", "false")
_ROBOT_NAME = Argument("robot_name", "", "Namespace of all nodes and topics; empty for none", alias="namespace")

_MODES_ON_TOPICS = ("ros2_control", "monitor_only", "external")
"""Modes whose arm or robot is reached over topics, maybe of another machine."""

ARGUMENTS = (
    Argument(
        "model",
        "kinova_gen3_2f85",
        "Robot: a name from config/ (kinova_gen3, kuka_lbr_med7, ...) or a YAML file; NAME:elastic for elastic joints, "
        "NAME:PRIOR or NAME:elastic:PRIOR for another one of its payload priors",
    ),
    _ROBOT_NAME,
    Argument(
        "mode",
        "mock",
        "mock: an arm simulated by MuJoCo; hardware: the real arm over FRI or Kortex; ros2_control: "
        "any arm with joint_states and effort commands, without real-time guarantees; monitor_only: any arm with "
        "joint_states, moved by others; emulated, emulated_...: the same with an emulated arm on this computer",
        tuple(one.value for one in Mode),
    ),  # fmt: skip
    Argument("robot_ip", "", "Address of the real arm's controller, with mode:=hardware"),
    Argument(
        "payload",
        "",
        "What a simulated arm holds: a name from config/payloads.yaml, a mass [kg], a mass at X Y Z [kg, m] or none; "
        "empty: that of the mode",
        is_optional=True,
    ),
    Argument(
        "gripper",
        "",
        "State of the gripper of a simulated arm, as the settings of the robot name it (open, closed); empty: any. A "
        "goal says which one it counts on: sysid identify says this one",
        is_optional=True,
    ),
    Argument(
        "scene",
        "",
        "What is always around the arm, whatever the topic obstacles says: a name from config/scenes or the path of a "
        "YAML file; empty: as the parameters of safe_planner and arm_driver say",
        is_optional=True,
    ),
    Argument(
        "proves_throughout",
        "",
        "Move only with tracking bounds that are proven throughout, no term of the model estimated: seconds more for "
        "each plan, so the arm rests more often; empty: as the parameter of safe_planner says",
        _SWITCH,
        bool,
        is_optional=True,
    ),
    Argument(
        "serial_number",
        "",
        "Serial number of the arm: compared with that of a calibration before anything moves; a Kinova tells its own",
        is_optional=True,
        alias="serial",
    ),
    Argument("fri_version", "", "LBR: version of FRI on the controller", is_optional=True),
    Argument("port_id", "", "LBR: UDP port of this computer", kind=int, is_optional=True),
    Argument("port", "", "Kinova: TCP port of the base", kind=int, is_optional=True),
    Argument("username", "", "Kinova: user of the base", is_optional=True),
    Argument("password_file", "", "Kinova: file with its password, which only its owner may read", is_optional=True),
    Argument("parameters_file", "", "YAML file of node parameters, over those of the mode: ports, versions, passwords"),
    Argument(
        "publish_tf",
        "auto",
        "Start robot_state_publisher, which publishes the frames of the links on /tf. auto: unless others run the arm, "
        "and with it theirs (ros2_control, monitor_only)",
        ("auto", *_SWITCH),
    ),
    Argument("tf_prefix", "", "Put before the names of frames on /tf, in markers and wrenches, such as left/"),
    Argument("launch_rviz", "false", "Start RViz with the view of this package", _SWITCH, bool),
    Argument("rviz_config_file", "", "RViz configuration; empty for the one of this package"),
    Argument(
        "view_port", "0", "Port on this machine where a browser shows the arm, such as 8080 (viser); 0: none", kind=int
    ),
    Argument("record", "true", "Write recording.mcap with the results", _SWITCH, bool),
    Argument("results_root", "~/sysid_results", "Folder below which results are written, and nowhere else"),
    Argument(
        "network",
        Network.AUTO.value,
        "Who hears the nodes. loopback: this machine alone; lan: as the environment says, by default everybody on its "
        "networks; auto: loopback, unless the arm is reached over topics (ros2_control, monitor_only, external)",
        tuple(one.value for one in Network),
    ),
    Argument("use_sim_time", "false", "Take the time from the topic /clock", _SWITCH, bool),
)
"""Arguments of ``identify.launch.py`` and options of the runner."""


@dataclass(frozen=True)
class Process:
    """One node in a process of its own.

    Attributes:
        executable: Name of the executable, of the node and of its module.
        description: What it does, in one sentence.
        own: Launch arguments it takes as parameters of the same name, beside ``model`` and ``use_sim_time``.
        parameter_files: Files of the package it reads; ``{mode}`` stands for that launch argument.
        ends_last: Whether it is ended only when all others have: they need it to end in order.
        is_required: Whether the suite ends when it ends, as motions or their data need it. Others are started again.
        has_key: Whether it gets the key of the suite, with which messages are signed and checked.
        package: Where its module is, in this package.
    """

    executable: str
    description: str
    own: tuple[str, ...] = ()
    parameter_files: tuple[str, ...] = ("config/nodes/{mode}.yaml",)
    ends_last: bool = False
    is_required: bool = True
    has_key: bool = False
    package: str = "nodes"

    @property
    def arguments(self) -> tuple[str, ...]:
        """All launch arguments that it takes."""
        return ("model", "use_sim_time", *self.own)

    @property
    def module(self) -> str:
        """Module that runs it: ``python -m <module>``."""
        return f"{PACKAGE}.{self.package}.{self.executable}"


_CONNECTION = ("serial_number", "fri_version", "port_id", "port", "username")
"""Arguments of how an arm is reached that both ends of an emulated connection take."""

IDENTIFY = (
    Process(
        "arm_driver",
        "owns the arm, real or simulated, and its torque loop",
        ("mode", "robot_ip", "payload", "gripper", "scene", *_CONNECTION, "password_file"),
        has_key=True,
    ),
    Process("excitation_planner", "plans motions that make the payload's parameters visible"),
    Process(
        "safe_planner",
        "checks motions against the limits and certifies them",
        ("tf_prefix", "scene", "proves_throughout"),
        has_key=True,
    ),
    Process("estimator", "turns samples into an estimate with bounds", ("tf_prefix",), has_key=True),
    Process(
        "identifiability",
        "says which parameters can be known, and which of the payload's the data know",
        is_required=False,
    ),
    Process(
        "identification",
        "runs the whole procedure: the action users call",
        ("tf_prefix", "record", "results_root"),
        has_key=True,
    ),
    Process(
        "monitor",
        "shows plan, payload and uncertainty in RViz, and in a browser",
        ("tf_prefix", "view_port"),
        is_required=False,
    ),
)
"""The processes of ``identify.launch.py`` and of the runner."""

EMULATED = (
    Process(
        "arm_emulator",
        "emulates the controller of an arm, with a simulated arm behind it",
        ("mode", "payload", "gripper", *_CONNECTION),
        ends_last=True,
        package="emulators.nodes",
    ),
)
"""What is started before them with ``mode:=emulated`` and its like, and ended after them: a driver hands back first."""


_SHARED = ("rviz_config_file", "record", "results_root", "network", "use_sim_time")
SPACE_ARGUMENTS = (
    Argument("model", "servicer", "Robot: a name from config/space/ (servicer, dual_arm) or a YAML file"),
    _ROBOT_NAME,
    Argument(
        "mode",
        "mock",
        "mock: a simulated robot; external: another driver publishes odometry, joint states and status, and follows",
        ("mock", "external"),
    ),
    Argument("speed", "1.0", "mock: simulated seconds per second", kind=float),
    Argument("parameters_file", "", "YAML file of node parameters"),
    Argument("launch_rviz", "false", "Start RViz and robot_state_publisher", _SWITCH, bool),
    *(
        one
        for one in ARGUMENTS
        if one.name in ("rviz_config_file", "record", "results_root", "network", "use_sim_time")
    ),
)
"""Arguments of ``space_robot.launch.py`` and options of ``sysid space``."""

SPACE_DRIVER = Process(
    "free_flyer_driver",
    "simulates a free-flying robot and follows trajectories of its joints and wheels",
    ("speed",),
    parameter_files=(),
    package="space.nodes",
)
"""The simulated robot; a real one has a driver of its own with the same topics."""

SPACE = (
    SPACE_DRIVER,
    Process(
        "free_flyer_identification",
        "plans exciting motions of a free-flying robot, lets it follow them and estimates its minimal parameters",
        ("record", "results_root"),
        parameter_files=(),
        package="space.nodes",
    ),
)
"""The processes of ``space_robot.launch.py`` and ``sysid space``."""


@dataclass(frozen=True)
class StartedProcess:
    """A process with everything its start needs.

    Attributes:
        process: What it is.
        namespace: ROS namespace; empty for none.
        parameter_files: Existing files.
        parameters: Parameters that override the files.
    """

    process: Process
    namespace: str
    parameter_files: tuple[Path, ...]
    parameters: Mapping[str, ParameterValue]


RESPAWN_DELAY = 2.0
"""How long after its end a process that is not required is started again [s]."""
STOP_TIMEOUT = 20.0
"""How long a process may take to end, so that the arm can come to rest and be handed back [s]."""


def key_variables(processes: Iterable[StartedProcess]) -> dict[str, str]:
    """Return the environment variables for those processes that have the key; make it where the user gives none.

    Raises:
        SysidError: The user's key file cannot be used.
    """
    if not any(one.process.has_key for one in processes):
        return {}
    from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE, make_run_key  # takes a second to load

    return {KEY_FILE_VARIABLE: str(make_run_key())}


ENCLAVE_VARIABLE = "ROS_SECURITY_ENCLAVE_OVERRIDE"
"""Where SROS2 looks for the identity of a process, and of those it starts; without SROS2 it has no meaning."""


def enclave_of(name: str, namespace: str = "") -> str:
    """Return the enclave of SROS2, the identity and its rights, that a node has in the policy of this package.

    Args:
        name: Name of the node's executable; ``operator`` for people and their tools.
        namespace: Namespace of the suite; empty for none.
    """
    return "/".join(["/sysid_ros", *filter(None, [namespace.strip("/")]), name])


def security_variables(name: str, namespace: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that give a process its enclave; none where the user has chosen one for all."""
    return {} if ENCLAVE_VARIABLE in environ else {ENCLAVE_VARIABLE: enclave_of(name, namespace)}


def network_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of all processes for the launch arguments ``network`` and ``mode``."""
    return network_variables(Network(values["network"]), values["mode"] in _MODES_ON_TOPICS)


def publishes_tf(values: Mapping[str, str]) -> bool:
    """Whether the frames of the arm's links are published: by us, or by the arm's own stack, never by both."""
    if values["publish_tf"] != "auto":
        return values["publish_tf"] == "true"
    return values["mode"] not in _MODES_ON_TOPICS


def resolve_space(values: Mapping[str, str], spelling: Spelling = Spelling.LAUNCH) -> list[StartedProcess]:
    """What has to be started for a free-flying robot; see :func:`resolve`."""
    texts, typed = _read(values, SPACE_ARGUMENTS, spelling)
    own = _own_parameters(texts["parameters_file"], spelling)
    return [
        StartedProcess(process, texts["robot_name"].strip("/"), own, {name: typed[name] for name in process.arguments})
        for process in SPACE
        if typed["mode"] == "mock" or process is not SPACE_DRIVER
    ]


def resolve(values: Mapping[str, str], spelling: Spelling = Spelling.LAUNCH) -> list[StartedProcess]:
    """What has to be started for given launch arguments.

    Args:
        values: Launch arguments as texts; those left out take their defaults.
        spelling: How they were typed.

    Raises:
        SysidError: There is no such argument, robot or parameter file, or a value is not allowed.
    """
    texts, typed = _read(values, ARGUMENTS, spelling)
    if typed["mode"] == "hardware" and not typed["robot_ip"]:
        allowed = f"the address of the arm, with {spelling.pair('mode', 'hardware')}"
        raise ParameterOutOfRange(spelling.title("robot_ip"), "", allowed)
    mode = Mode(texts["mode"])
    if texts["payload"] and not mode.is_simulated:
        raise ParameterOutOfRange(spelling.title("payload"), texts["payload"], "nothing, with a real arm")
    require_robot(texts["model"])
    known = {argument.name: argument for argument in ARGUMENTS}
    own = _own_parameters(texts["parameters_file"], spelling)
    return [
        StartedProcess(
            process=process,
            namespace=texts["robot_name"].strip("/"),
            parameter_files=(*(resource(name.format(mode=texts["mode"])) for name in process.parameter_files), *own),
            parameters={name: typed[name] for name in process.arguments if texts[name] or not known[name].is_optional},
        )
        for process in (*(EMULATED if mode.is_emulated else ()), *IDENTIFY)
    ]


def _read(
    values: Mapping[str, str], arguments: Sequence[Argument], spelling: Spelling
) -> tuple[dict[str, str], dict[str, ParameterValue]]:
    """Texts and typed values of all arguments."""
    table = {argument.name: argument for argument in arguments}
    for name in values:
        if name not in table:
            raise unknown_argument(name, list(table))
    texts = {name: values.get(name, argument.default) for name, argument in table.items()}
    return texts, {name: argument.value(texts[name], spelling) for name, argument in table.items()}


def _own_parameters(path: str, spelling: Spelling) -> tuple[Path, ...]:
    """The user's file of parameters, if there is one."""
    if not path:
        return ()
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise ParameterOutOfRange(spelling.title("parameters_file"), path, "an existing YAML file of ROS parameters")
    return (file,)
