"""Declaring, checking and changing node parameters."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

import pytest
import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.adapters.safe_planner.service import SafePlannerParameters
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.ros.parameters import (
    NodeParameters,
    ParameterServer,
    declared,
    parameter,
    parameter_like,
    parameters_from,
)


@dataclass(frozen=True)
class ExampleParameters(NodeParameters):
    """Parameters of a node that exists only here."""

    duration: float = parameter(2.0, "s", lower=0.1, upper=5.0)
    """How long."""
    pause: float = parameter(0.5, "s", lower=0.0)
    """Shorter than the duration."""
    count: int = parameter(3, "-", lower=1)
    """How many."""
    mode: str = parameter("mock", choices=("mock", "hardware"), read_only=True)
    """Which arm."""
    weights: tuple[float, ...] = parameter((1.0, 2.0), "-", lower=0.0)
    """One for each."""
    joints: tuple[str, ...] = parameter(())
    """Names."""

    def check(self) -> None:
        if self.pause >= self.duration:
            raise ParameterOutOfRange("parameter pause [s]", self.pause, f"below the duration, {self.duration}")


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Gains(Settings):
    """Settings a node takes."""

    stiffness: float = setting(10.0, "Nm/rad", above=0.0, upper=100.0)
    """Torque over angle."""
    damping: float = setting(1.0, "-", lower=0.0, upper=2.0)
    """Over the critical one."""
    side: Side = setting(Side.LEFT)
    """Which arm."""
    order: int = setting(4, "-", lower=1, library_only=True)
    """Of the filter."""
    period: float = setting(0.001, "s", lower=1e-4)
    """Of the loop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.damping > self.stiffness:
            raise ParameterOutOfRange("damping [-]", self.damping, "at most the stiffness")


@dataclass(frozen=True)
class ControlParameters(NodeParameters):
    """Parameters of a node that takes settings."""

    rate: float = parameter(2.0, "Hz", lower=0.1)
    """How often."""
    gains: Gains = parameters_from(
        Gains, prefix="gain_", rename={"side": "arm"}, note="PD: ", defaults={"damping": 0.7}, computed=("period",)
    )
    limit: float = parameter_like(Gains, "stiffness", read_only=True)


@pytest.fixture(scope="module", autouse=True)
def _ros():
    rclpy.init()
    yield
    rclpy.shutdown()


@pytest.fixture
def make_node():
    nodes = []

    def make(**overrides):
        given = [Parameter(name, value=value) for name, value in overrides.items()]
        nodes.append(Node(f"example_{len(nodes)}", parameter_overrides=given))
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()


def test_defaults_and_overrides_reach_the_values(make_node):
    values = ParameterServer(make_node(duration=4.0, weights=[3.0], joints=["a", "b"]), ExampleParameters).values
    assert (values.duration, values.pause, values.weights, values.joints) == (4.0, 0.5, (3.0,), ("a", "b"))
    assert ParameterServer(make_node(), ExampleParameters).values == ExampleParameters()


def test_descriptors_carry_unit_range_and_description(make_node):
    node = make_node()
    ParameterServer(node, ExampleParameters)
    descriptor = node.describe_parameter("duration")
    assert descriptor.description == "How long [s]"
    assert (descriptor.floating_point_range[0].from_value, descriptor.floating_point_range[0].to_value) == (0.1, 5.0)
    assert descriptor.additional_constraints == "allowed: a number with a decimal point, as in 2.0, from 0.1 to 5 [s]"
    assert node.describe_parameter("count").integer_range[0].from_value == 1
    assert node.describe_parameter("mode").read_only


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"duration": 7.0}, r"duration \[s\] 7.0: expected a number .* from 0.1 to 5 \[s\]"),
        ({"duration": math.nan}, "parameter duration .* nan"),
        ({"duration": 3}, "duration.*3: expected a number with a decimal point"),
        ({"count": 0}, "parameter count .*at least 1"),
        ({"mode": "dream"}, "mode 'dream': expected one of 'mock', 'hardware'"),
        ({"weights": [1.0, -1.0]}, "parameter weights .*at least 0"),
        ({"pause": 3.0}, r"pause \[s\] 3.0: expected below the duration, 2.0"),
    ],
)
def test_wrong_values_at_the_start_are_refused(make_node, given, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        ParameterServer(make_node(**given), ExampleParameters)


def test_unknown_parameter_at_the_start_is_refused_with_the_valid_names(make_node):
    with pytest.raises(SysidError, match="no parameter 'durration'; it has duration, pause, count"):
        ParameterServer(make_node(durration=2.0), ExampleParameters)


def test_parameters_of_ros_itself_are_not_unknown(make_node):
    ParameterServer(make_node(use_sim_time=False), ExampleParameters)


def test_accepted_change_reaches_values_and_callback(make_node):
    node = make_node()
    server, seen = ParameterServer(node, ExampleParameters), []
    server.on_change(seen.append)
    (result,) = node.set_parameters([Parameter("duration", value=3.0)])
    assert result.successful
    assert server.values.duration == 3.0
    assert [values.duration for values in seen] == [3.0]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("duration", 9.0, "Parameter duration out of range"),
        ("duration", 0.4, "parameter pause .* below the duration, 0.4"),
        ("weights", [-1.0], "parameter weights .* at least 0"),
        ("mode", "hardware", "read-only"),
        ("count", 1.5, "type"),
    ],
)
def test_refused_change_leaves_everything_as_it_was(make_node, name, value, reason):
    node = make_node()
    server, seen = ParameterServer(node, ExampleParameters), []
    server.on_change(seen.append)
    (result,) = node.set_parameters([Parameter(name, value=value)])
    assert not result.successful
    assert re.search(reason, result.reason), result.reason
    assert server.values == ExampleParameters()
    assert seen == []


def test_empty_list_of_numbers_has_no_type_in_ros(make_node):
    @dataclass(frozen=True)
    class Empty(NodeParameters):
        weights: tuple[float, ...] = parameter((), "-")

    with pytest.raises(TypeError, match="give a default with an entry"):
        ParameterServer(make_node(), Empty)


def test_settings_of_a_node_become_parameters():
    found = declared(ControlParameters)
    assert list(found) == ["rate", "gain_stiffness", "gain_damping", "arm", "limit"]
    assert found["gain_damping"].default == 0.7
    assert found["arm"].default == "left" and found["arm"].setting.choices == ("left", "right")
    assert found["gain_stiffness"].setting.description == "PD: torque over angle"
    assert found["limit"].setting.description == "Torque over angle" and found["limit"].read_only


def test_values_reach_the_settings_and_are_checked_there(make_node):
    server = ParameterServer(make_node(gain_stiffness=5.0, arm="right"), ControlParameters)
    assert server.values.gains == Gains(stiffness=5.0, damping=0.7, side=Side.RIGHT)
    assert server.values.gains.side is Side.RIGHT
    for wrong, message in (
        ({"gain_stiffness": 0.0}, r"gain_stiffness \[Nm/rad\] 0.0: expected .* above 0, at most 100"),
        ({"gain_stiffness": 5}, "parameter gain_stiffness .* a number with a decimal point"),
        ({"arm": "middle"}, "arm 'middle': expected one of 'left', 'right'"),
        ({"gain_stiffness": 0.5}, "damping .* at most the stiffness"),
    ):
        with pytest.raises(ParameterOutOfRange, match=message):
            ParameterServer(make_node(**wrong), ControlParameters)
    with pytest.raises(SysidError, match="no parameter 'gain_order'"):
        ParameterServer(make_node(gain_order=3), ControlParameters)


def test_change_of_a_setting_reaches_the_node(make_node):
    node = make_node()
    server, seen = ParameterServer(node, ControlParameters), []
    server.on_change(seen.append)
    (result,) = node.set_parameters([Parameter("gain_damping", value=1.5)])
    assert result.successful and seen[-1].gains.damping == 1.5
    (result,) = node.set_parameters([Parameter("gain_stiffness", value=1.0)])
    assert not result.successful and "at most the stiffness" in result.reason
    assert server.values.gains.stiffness == 10.0


def test_mistakes_of_a_declaration_are_named():
    @dataclass(frozen=True)
    class Twice(NodeParameters):
        damping: float = parameter(1.0, "-", lower=0.0)
        gains: Gains = parameters_from(Gains)

    @dataclass(frozen=True)
    class Misspelt(NodeParameters):
        gains: Gains = parameters_from(Gains, computed=("perod",))

    with pytest.raises(TypeError, match="Twice declares damping twice"):
        declared(Twice)
    with pytest.raises(TypeError, match="Gains has no settings perod"):
        declared(Misspelt)


def test_parameters_that_make_a_motion_safe_are_fixed_at_the_start():
    """What may change later is told here: none of it makes a motion less safe."""
    of_faults = {name for name in declared(ArmDriverParameters) if name.startswith("fault_")}
    free = {
        kind: {name for name, one in declared(kind).items() if not one.read_only}
        for kind in (ArmDriverParameters, SafePlannerParameters)
    }
    assert free == {ArmDriverParameters: of_faults, SafePlannerParameters: set()}  # faults: of a simulated arm only
