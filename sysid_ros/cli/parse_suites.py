"""The command lines of what starts the suite, or speaks to a running system."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.options import add_launch_options, add_view_option, check_view, launch_values
from sysid_ros.core.common.command_line import LARGEST_SEED, CommandParser, port_number, require_numbers
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot_files import require_robot
from sysid_ros.drivers.modes import KORTEX_PORT, KORTEX_PORT_REALTIME, RTDE_PORT, SCRIPT_PORT
from sysid_ros.processes import ARGUMENTS, SPACE_ARGUMENTS, Spelling, resolve, resolve_space
from sysid_ros.reports.folders import require_result
from sysid_ros.reports.recordings.options import InvalidRecording, read_mass
from sysid_ros.space.core.method import Method

DEFAULT_PAYLOAD = "dumbbell_4lb"
"""What a simulated arm holds where nothing is said."""
OF_GOALS = ("max_motion_time", "trajectories", "target_mass_width", "mass")
"""Options that go into the goal."""


def identify_parser() -> CommandParser:
    """Return the parser of ``sysid identify``."""
    return _goal_parser("identify", "Identifies what an arm holds, with guaranteed bounds")


def weigh_parser() -> CommandParser:
    """Return the parser of ``sysid weigh``."""
    return _goal_parser("weigh", "Weighs the payload of an arm, with guaranteed bounds, by slow motions alone")


def _goal_parser(action: str, what: str) -> CommandParser:
    parser = CommandParser(
        prog=f"sysid {action}",
        description=f"{what}: starts the nodes, sends one goal and ends everything. Ctrl-C brings the arm to rest "
        "first.",
        examples=(
            f"sysid {action} --model kinova_gen3_2f85 --payload dumbbell_4lb",
            f"sysid {action} --model kuka_lbr_med7 --mode emulated --payload 1.5",
            f"sysid {action} --model iiwa7:elastic:compact_tool --mode hardware \\\n  --robot-ip 10.0.0.3",
        ),
        check=_check_identify,
        endings=endings(ExitStatus.FAILED, ExitStatus.NODE_DIED, ExitStatus.NOT_IDENTIFIED),
        allow_abbrev=False,
    )
    add_launch_options(parser, ARGUMENTS)
    add = parser.add_argument
    text = (
        "what a simulated arm holds: a name from config/payloads.yaml, a mass [kg] of the default's shape, or "
        f"'none' (default: {DEFAULT_PAYLOAD})"
    )
    add("--payload", default="", help=text)
    add("--seed", type=int, default=0, help="seed of the simulation and the excitation search")
    add("--max-motion-time", type=float, default=0.0, help="longest motion of the arm [s]; 0: default")
    add("--trajectories", type=int, default=0, help="number of motions (weigh: two for each posture); 0: default")
    add("--target-mass-width", type=float, default=0.0, help="stop when the mass is known this well [kg]; 0: never")
    _add_mass_option(parser)
    _add_tare_option(parser)
    add_view_option(parser, "show the arm, its payload, plans and environment")
    if action == "identify":
        add("--nodes-only", action="store_true", help="send no goal; run the nodes until Ctrl-C")
    parser.set_defaults(command=parser.prog, action=action, nodes_only=False)
    return parser


def demo_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid demo",
        description="Identifies an unknown payload on a simulated arm and shows how the bounds shrink: the arm moves "
        "with its hand empty first, and then grasps the payload.",
        examples=(
            "sysid demo",
            "sysid demo --tare none",
            "sysid demo --model kuka_lbr_med7 --mode emulated --payload 1.5",
        ),
        check=_check_identify,
        endings=endings(ExitStatus.FAILED, ExitStatus.NODE_DIED, ExitStatus.NOT_IDENTIFIED),
        allow_abbrev=False,
    )
    parser.set_defaults(**{**vars(identify_parser().parse_args([])), "command": "sysid demo"})
    add = parser.add_argument
    add("--model", default="kinova_gen3_2f85", help="the arm: a name or a settings file")
    add("--mode", default="mock", choices=("mock", "emulated"), help="simulated, or emulated controller")
    add("--payload", default="dumbbell_4lb", help="what the arm identifies in the end")
    add("--seed", type=int, default=0, help="seed of the simulation and of the searches")
    add("--results", "--output", type=Path, default=Path("results"), help="folder for the folder of this run")
    _add_mass_option(parser)
    _add_tare_option(parser)
    add_view_option(parser, "show the arm while it identifies")
    return parser


def _add_mass_option(parser: CommandParser) -> None:
    text = "mass of the payload from a scale [kg], such as 1.814+-0.002; bounds count on it"
    parser.add_argument("--mass", default="", metavar="MASS[+-TOLERANCE]", help=text)


def _add_tare_option(parser: CommandParser) -> None:
    text = (
        "auto: move with the empty hand first, unless the arm is calibrated or moved by others; a person at the "
        "terminal is asked to empty a real hand; none: do not (default: auto)"
    )
    parser.add_argument("--tare", default="auto", choices=("auto", "none"), help=text)


def tare_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid tare",
        description="Moves the arm of a running suite (sysid identify --nodes-only, or the launch file) with the empty "
        "hand. Known better, gains, friction and offsets make the bounds of all payloads narrower that are "
        "identified until the driver ends.",
        examples=("sysid tare --model kinova_gen3_2f85",),
        endings=endings(ExitStatus.FAILED),
    )
    add = parser.add_argument
    add("--model", default="kinova_gen3_2f85", help="robot, as given to the nodes")
    add("--robot-name", default="", help="namespace of the nodes; empty for none")
    add("--gripper", default="", help="its state, as the robot's settings name it; empty: any of them")
    add("--seed", type=int, default=0, help="seed of the excitation search")
    add("--results", default="", help="folder below the node's results_root; empty: no files")
    return parser


def space_parser() -> CommandParser:
    """Build the command line: the launch arguments as options, and what only the runner has."""
    parser = CommandParser(
        prog="sysid space",
        description="Identifies the minimal parameters of a free-flying robot: a simulated one with its nodes, or "
        "from a recording; and what it holds.",
        examples=("sysid space --speed 5 --object", "sysid space --recording recording.mcap --momentum 0.1 0.1"),
        check=_check_space,
        endings=endings(ExitStatus.FAILED, ExitStatus.NODE_DIED, ExitStatus.NOT_IDENTIFIED),
        allow_abbrev=False,
    )
    add_launch_options(parser, SPACE_ARGUMENTS)
    add = parser.add_argument
    add("--recording", type=Path, help="estimate from this recording.mcap, without nodes")
    add("--method", choices=[method.value for method in Method], default=Method.TOTAL.value, help="offline: the method")
    text = "largest component of the momentum at the first sample [kg m/s, kg m^2/s]; 0 0: none"
    add("--momentum", type=float, nargs=2, metavar=("LINEAR", "ANGULAR"), default=(0.0, 0.0), help=text)
    text = (
        "identify what is in the hand, in this frame (default: the robot's tool); with nodes, after the robot "
        "itself: a simulated one then catches something"
    )
    add("--object", nargs="?", const="", metavar="FRAME", help=text)
    add("--known", type=Path, metavar="YAML", help="with --object: estimate.yaml of the robot without the object")
    add("--before", type=Path, nargs="+", default=(), metavar="MCAP", help="offline: recordings made before the catch")
    add("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: default")
    add("--parts", type=int, default=0, help="parts of the motion; 0: default")
    add("--planning-time", type=float, default=30.0, help="time for planning [s] (default: 30)")
    add("--seed", type=int, default=0, help="seed of simulation and search")
    add("--nodes-only", action="store_true", help="send no goal; run the nodes until Ctrl-C")
    return parser


_TARGETS = {
    "ur": ("UniversalRobots", "a controller of Universal Robots, without ROS", "robot-ip rtde-port script-port"),
    "ur-driver": ("UrDriver", "Universal Robots' ROS 2 driver", "robot-ip rtde-port service unconfirmed"),
    "kortex": ("Kortex", "a Kinova Gen3, without ROS", "robot-ip port port-realtime username password tool"),
    "franka": ("Franka", "franka_ros2, by its service set_load", "namespace"),
    "kuka": ("Kuka", "a KUKA LBR: what to enter in Sunrise.Workbench, as nothing can be sent", "model"),
    "admittance": ("Admittance", "the admittance controller of ros2_control, by parameters", "controller"),
    "moveit": ("MoveIt", "MoveIt's planning scene, as an attached object", "namespace"),
}  # fmt: skip
"""Targets of ``sysid apply``: the class, in words, and options."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "robot-ip": {"help": "address of the controller"},
    "rtde-port": {"type": port_number, "default": RTDE_PORT, "help": "its port of RTDE (default: %(default)s)"},
    "script-port": {"type": port_number, "default": SCRIPT_PORT, "help": "its port of scripts (default: %(default)s)"},
    "service": {"default": "/io_and_status_controller/set_payload", "help": "its service (default: %(default)s)"},
    "unconfirmed": {"action": "store_true", "help": "do not read back, without --robot-ip"},
    "port": {"type": port_number, "default": KORTEX_PORT, "help": "its TCP port (default: %(default)s)"},
    "port-realtime": {"type": port_number, "default": KORTEX_PORT_REALTIME, "help": "UDP port (default: %(default)s)"},
    "username": {"default": "admin", "help": "user of the base (default: %(default)s)"},
    "password": {"default": "admin", "help": "its password (default: %(default)s)"},
    "tool": {"action": "store_true", "help": "give tool and payload as one tool, and no payload"},
    "namespace": {"default": "", "help": "namespace of its nodes"},
    "model": {"default": "", "help": "the arm; default: that of the result"},
    "controller": {"default": "/admittance_controller", "help": "its name (default: %(default)s)"},
}  # fmt: skip


def apply_parser() -> CommandParser:
    """Return the parser of the command line."""
    ends = endings(ExitStatus.FAILED)
    examples = {
        name: f"sysid apply {name} results/2026-11-23_10-00-00{' --robot-ip 192.168.1.10' * ('robot-ip' in own)}"
        for name, (_, _, own) in _TARGETS.items()
    }
    parser = CommandParser(
        prog="sysid apply",
        description="Gives the payload of a result to a running system, and reads it back. It shows first what it will "
        "send, and asks. Results that are not usable, or know mass and centre of mass no better than before the data, "
        "are refused.",
        examples=tuple(examples.values()),
        endings=ends,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (target, text, own) in _TARGETS.items():
        about = f"Gives the payload to {text}."
        one = commands.add_parser(
            name, help=text, description=about, examples=(examples[name],), endings=ends, check=_check_apply
        )
        one.add_argument("folder", type=Path, metavar="FOLDER", help="results folder, with estimate.yaml in it")
        one.add_argument("--dry-run", action="store_true", help="only show what would be sent")
        one.add_argument("--yes", action="store_true", help="do not ask")
        one.add_argument(
            "--accept-uncertain", action="store_true", help="also where mass or centre of mass is not well known"
        )
        for option in own.split():
            is_needed = {"required": True} if option == "robot-ip" and name != "ur-driver" else {}
            one.add_argument(f"--{option}", **_OPTIONS[option], **is_needed)
        one.set_defaults(target=target)
    return parser


def check_load_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid check-load",
        description="Checks the load that is entered in a controller: whether mass and CoM lie within the bounds of a "
        "result, and which external torques the controller sees at rest because of what it has wrong.",
        examples=("sysid check-load results/2026-11-23_10-00-00 --mass 2.7 --com 0 0 0.11",),
        endings=endings(ExitStatus.FAILED),
        check=_check_load,
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="results folder, with estimate.yaml in it")
    add("--mass", type=float, required=True, help="mass of the load that is entered [kg]")
    add("--com", type=float, nargs=3, required=True, metavar=("X", "Y", "Z"), help="its centre of mass [m]")
    text = (
        "flange: payload and tool together, about the flange; "
        "tool: the payload alone, about the tool frame (default: %(default)s)"
    )
    add("--at", default="flange", choices=("flange", "tool"), help=text)
    add("--posture", type=float, nargs="+", metavar="RAD", help="where the arm rests [rad]; default: home")
    add("--model", default="", help="the arm; default: that of the result")
    return parser


def how_heavy_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid how-heavy",
        description="Finds the heaviest object that a straight motion of the joints between two postures at rest is "
        "certified for, whatever its mass up to there.",
        examples=("sysid how-heavy --goal 0.8 0.4 0.4 1.2 0.3 1.5 0.4",),
        endings=endings(ExitStatus.FAILED),
        check=lambda options: require_robot(options.model),
    )
    add = parser.add_argument
    add("--goal", type=float, nargs="+", required=True, metavar="RAD", help="posture to get to [rad]")
    add("--start", type=float, nargs="+", metavar="RAD", help="posture to start from [rad]; default: home")
    add("--model", default="kinova_gen3_2f85", help="the arm (default: %(default)s)")
    add("--ground", type=float, default=0.0, metavar="M", help="height of the ground [m] (default: 0)")
    return parser


def _check_load(options: argparse.Namespace) -> None:
    require_numbers(options, "mass")
    require_result(options.folder)


def _check_identify(options: argparse.Namespace) -> None:
    require_numbers(options, *OF_GOALS[:3])
    require_numbers(options, "seed", most=LARGEST_SEED)
    read_mass(options.mass or "0")
    given = [name for name in OF_GOALS if getattr(options, name)]
    if options.nodes_only and given:
        name, value = "--" + given[0].replace("_", "-"), getattr(options, given[0])
        raise ParameterOutOfRange(name, value, "nothing with --nodes-only, which sends no goal")
    require_robot(options.model)
    resolve(launch_values(options, ARGUMENTS), spelling=Spelling.OPTION)
    check_view(options)


def _check_space(options: argparse.Namespace) -> None:
    require_numbers(options, "max_motion_time", "parts")
    require_numbers(options, "planning_time", is_open=True)
    require_numbers(options, "seed", most=LARGEST_SEED)
    is_offline, defaults = options.recording is not None, space_parser()
    alone: dict[str, tuple[bool, str]] = {
        **dict.fromkeys(("method", "before"), (is_offline, "with --recording")),
        **dict.fromkeys(
            ("robot_name", "mode", "speed", "parameters_file", "network", "max_motion_time", "parts", "planning_time"),
            (not is_offline, "without --recording"),
        ),
        "nodes_only": (not is_offline, "without --recording"),
    }
    for name, (is_fitting, where) in alone.items():
        if not is_fitting and getattr(options, name) != defaults.get_default(name):
            raise SysidError(f"--{name.replace('_', '-')} can only be given {where}")
    for name in ("known", "before"):
        if getattr(options, name) and options.object is None and not options.nodes_only:
            raise SysidError(f"--{name} can only be given with --object")
    for path in filter(None, (options.recording, options.known, *options.before)):
        if not path.is_file():
            raise InvalidRecording(path, "the file", "missing", "one that exists")
    if not is_offline:
        resolve_space(launch_values(options, SPACE_ARGUMENTS), Spelling.OPTION)


def _check_apply(options: argparse.Namespace) -> None:
    require_result(options.folder)
    robot_ip = getattr(options, "robot_ip", "-")
    if robot_ip == "":
        raise ParameterOutOfRange("--robot-ip", "", "the controller's address")
    if robot_ip is None and not (options.unconfirmed or options.dry_run):
        allowed = "the controller's address, from which the payload is read back; or --unconfirmed"
        raise ParameterOutOfRange("--robot-ip", MISSING, allowed)
