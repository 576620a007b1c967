"""Node parameters and settings are one thing: each parameter reaches its setting, and each setting has a parameter."""

import ast
import importlib
import math
import pkgutil
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import sysid_ros.core
import sysid_ros.drivers
import sysid_ros.emulators
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, settings_of
from sysid_ros.emulators.nodes.ros2_control_emulator import BroadcasterParameters
from sysid_ros.nodes.arm_driver import ArmDriverParameters
from sysid_ros.nodes.identification import IdentificationParameters
from sysid_ros.nodes.safe_planner import SafePlannerParameters
from sysid_ros.processes import EMULATED, IDENTIFY, SPACE
from sysid_ros.ros.parameters import NodeParameters, declared, parameter

ROOT = Path(__file__).parents[2]


def all_kinds():
    """The class of parameters of every node."""
    kinds = [BroadcasterParameters]
    for process in (*IDENTIFY, *EMULATED, *SPACE):
        module = importlib.import_module(process.module)
        homes = (module.__name__, "sysid_ros.adapters.", "sysid_ros.space.adapters.")
        kinds += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, NodeParameters) and value.__module__.startswith(homes)
        ]
    return kinds


def all_settings():
    """Every class of settings of the product; those of baselines in papers are no parameters."""
    for package in (sysid_ros.core, sysid_ros.drivers, sysid_ros.emulators):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    found, waiting = set(), [Settings]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        found.update(
            kind for kind in below if kind.__module__.startswith("sysid_ros.") and ".papers." not in kind.__module__
        )
    return sorted(found, key=lambda kind: kind.__qualname__)


def test_every_setting_is_described_and_every_number_has_unit_and_range():
    kinds = all_settings()
    assert len(kinds) >= 10
    for kind in kinds:
        for one in fields(kind):
            if one.name not in settings_of(kind):
                continue
            info, where = settings_of(kind)[one.name], f"{kind.__name__}.{one.name}"
            assert len(info.description) > 5, f"{where} has no docstring"
            if isinstance(one.default, (int, float)) and not isinstance(one.default, bool):
                assert info.unit, f"{where} has no unit"
                assert info.allowed, f"{where} has no range"


def test_every_setting_refuses_what_is_outside_its_range():
    settings = [(kind, name, info) for kind in all_settings() for name, info in settings_of(kind).items()]
    assert len({kind for kind, *_ in settings}) > 12 and len(settings) > 100
    for kind, name, info in settings:
        if not info.allowed:
            continue
        outside = ["no such choice"] if info.choices else [math.nan]
        outside += [end - 1e-3 for end in (info.lower, info.above) if end is not None]
        outside += [2.0 * abs(end) + 1.0 for end in (info.upper, info.below) if end is not None]
        for value in outside:
            given = (value,) if isinstance(getattr(kind(), name), tuple) else value
            with pytest.raises(ParameterOutOfRange, match=name):
                kind(**{name: given})


FROM_SETTINGS = [(kind, one) for kind in all_kinds() for one in declared(kind).values() if one.group is not None]


@pytest.mark.parametrize(
    ("kind", "one"), FROM_SETTINGS, ids=lambda item: getattr(item, "name", item.__class__.__name__)
)
def test_every_parameter_reaches_its_setting(kind, one):
    """It is changed alone, and the settings the node works with show it."""
    value = other_value(one)
    changed = kind().with_values(**{one.name: value})
    new, old = (getattr(getattr(values, one.group), one.target) for values in (changed, kind()))
    assert getattr(new, "value", new) == value
    assert getattr(old, "value", old) == one.default != value


def other_value(one):
    """An allowed value that is not the default."""
    info, default = one.setting, one.default
    known = {
        "brake_times": (0.4, 0.6),
        "object_mass": 5.0,  # without a value of its own: a robot file has one
        "object_reach": 0.4,
        "trajectory_duration": 2.0,  # no longer than the motion that is allowed
        "max_motion_time": 30.0,
        "planning_time": 1.0,  # shorter than the plan
        "send_period": 0.002,
        "validity": 30.0,
    }
    if one.name in known:
        return known[one.name]
    if isinstance(default, tuple):
        return default[:-1] if default else (info.choices[-1] if info.choices else "joint_1",)
    if info.choices:
        return next(choice for choice in info.choices if choice != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return "all"
    lower = info.lower if info.above is None else info.above
    upper = info.upper if info.below is None else info.below
    middle = 0.5 * (lower + min(upper, 2.0 * max(default, 1.0)))
    value = int(middle) if isinstance(default, int) else float(middle)
    return value if value != default else type(default)(lower)


def test_every_setting_has_a_parameter_or_is_for_the_library_only():
    reached = set()
    for kind in all_kinds():
        for one in fields(kind):
            group = one.metadata.get("settings")
            if group is not None:
                reached |= {(group.keywords["kind"], name) for name in group.keywords["computed"]}
                reached |= {
                    (group.keywords["kind"], each.target) for each in declared(kind).values() if each.group == one.name
                }
    kinds = [kind for kind in all_settings() if not kind.__subclasses__()]  # shared settings count in each of these
    missing = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, info in settings_of(kind).items()
        if not info.library_only and (kind, name) not in reached
    ]
    assert missing == []


def unread(kind, read):
    """Parameters only this node has whose value nobody reads."""
    return [one.name for one in declared(kind).values() if one.group is None and one.name not in read]


def read_attributes():
    """Names of all attributes that the product reads."""
    return {
        node.attr
        for path in (ROOT / "sysid_ros").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_parameter_of_a_node_alone_is_read():
    @dataclass(frozen=True)
    class Careless(NodeParameters):
        rate: float = parameter(1.0, "Hz", lower=0.1)
        rate_that_nobody_reads: float = parameter(1.0, "Hz", lower=0.1)

    read = read_attributes()
    assert unread(Careless, read) == ["rate_that_nobody_reads"]
    for kind in all_kinds():
        # Read before the class of parameters exists, by the main function of every node.
        assert unread(kind, read | {"autostart"}) == []


def test_what_a_connection_shares_reaches_every_client():
    values = ArmDriverParameters().with_values(
        robot_ip="10.0.0.1", connect_timeout=5.5, session_timeout=0.6, cycle_timeout=0.003, late_limit=0.05,
        velocity_source="positions", session_inactivity_timeout_ms=3000, connection_inactivity_timeout_ms=400,
        update_rate=500.0,
    )  # fmt: skip
    for settings in (values.fri_settings, values.kortex_settings, values.ros2_control_settings):
        assert (settings.connect_timeout, settings.session_timeout) == (5.5, 0.6)
        assert (settings.wait_time, settings.late_limit) == (0.003, 0.05)
    assert values.fri_settings.robot_ip == values.kortex_settings.robot_ip == "10.0.0.1"
    assert values.kortex_settings.velocity.value == values.ros2_control_settings.velocity.value == "positions"
    assert values.kortex_settings.session_inactivity_timeout == 3.0
    assert values.kortex_settings.connection_inactivity_timeout == 0.4
    assert values.ros2_control_settings.period == 0.002
    assert values.kortex_settings.reply_wait == 0.003
    assert ArmDriverParameters().kortex_settings.reply_wait == 0.00075


def test_in_milliseconds_the_timeouts_of_a_kinova_are_those_of_its_client():
    kortex, values = ArmDriverParameters().kortex, ArmDriverParameters()
    assert values.session_inactivity_timeout_ms == 1e3 * kortex.session_inactivity_timeout
    assert values.connection_inactivity_timeout_ms == 1e3 * kortex.connection_inactivity_timeout


def test_an_arm_without_an_address_is_where_its_mode_says():
    def addresses(**values):
        parameters = ArmDriverParameters().with_values(**values)
        return parameters.fri_settings.robot_ip, parameters.kortex_settings.robot_ip

    assert addresses(mode="emulated") == ("127.0.0.1", "127.0.0.1")
    assert addresses(mode="hardware") == ("", "192.168.1.10")
    assert addresses(mode="emulated", robot_ip="10.0.0.1") == ("10.0.0.1", "10.0.0.1")


def test_the_search_keeps_more_of_the_torque_limits_than_the_proof_asks_for():
    values = SafePlannerParameters().with_values(torque_fraction=0.5, brake_times=[0.6, 0.9])
    assert values.verifier.torque_fraction == 0.5 and values.search.torque_fraction == 0.98 * 0.5
    assert values.search.brake_time == 0.9


def test_rules_between_fields_are_refused_where_they_are_given():
    with pytest.raises(ParameterOutOfRange, match="parameter brake_times .* ascending"):
        SafePlannerParameters().with_values(brake_times=[0.6, 0.4])
    with pytest.raises(ParameterOutOfRange, match="brake_times.* at least one"):
        SafePlannerParameters().with_values(brake_times=[])
    with pytest.raises(ParameterOutOfRange, match="at most max_motion_time"):
        IdentificationParameters().with_values(strategy="periodic", max_motion_time=3.0)
