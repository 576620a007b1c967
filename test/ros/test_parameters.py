"""Declaring, checking and changing node parameters."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.ros.parameters import NodeParameters, ParameterServer, UnknownParameter, parameter


@dataclass(frozen=True)
class ExampleParameters(NodeParameters):
    """Parameters of a node that exists only here."""

    duration: float = parameter(2.0, "s", "How long", lower=0.1, upper=5.0)
    pause: float = parameter(0.5, "s", "Shorter than the duration", lower=0.0)
    count: int = parameter(3, "-", "How many", lower=1)
    mode: str = parameter("mock", "", "Which arm", choices=("mock", "hardware"), read_only=True)
    weights: tuple[float, ...] = parameter((1.0, 2.0), "-", "One for each", lower=0.0)
    joints: tuple[str, ...] = parameter((), "", "Names")

    def check(self) -> None:
        if self.pause >= self.duration:
            raise ParameterOutOfRange("parameter 'pause' [s]", self.pause, f"below the duration, {self.duration}")


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
        ({"duration": 7.0}, r"'duration' \[s\] is 7.0; allowed: a number .* from 0.1 to 5 \[s\]"),
        ({"duration": math.nan}, "'duration'.*is nan"),
        ({"duration": 3}, "'duration'.*is 3; allowed: a number with a decimal point"),
        ({"count": 0}, "'count'.*at least 1"),
        ({"mode": "dream"}, "'mode' is 'dream'; allowed: one of 'mock', 'hardware'"),
        ({"weights": [1.0, -1.0]}, "'weights'.*at least 0"),
        ({"pause": 3.0}, r"'pause' \[s\] is 3.0; allowed: below the duration, 2.0"),
    ],
)
def test_wrong_values_at_the_start_are_refused(make_node, given, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        ParameterServer(make_node(**given), ExampleParameters)


def test_unknown_parameter_at_the_start_is_refused_with_the_valid_names(make_node):
    with pytest.raises(UnknownParameter, match="no parameter 'durration'; it has duration, pause, count"):
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
        ("duration", 0.4, "'pause' .* below the duration, 0.4"),
        ("weights", [-1.0], "'weights' .* at least 0"),
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


def test_building_the_dataclass_checks_without_ros():
    with pytest.raises(ParameterOutOfRange, match="'duration'"):
        ExampleParameters(duration=0.0)


def test_empty_list_of_numbers_has_no_type_in_ros(make_node):
    @dataclass(frozen=True)
    class Empty(NodeParameters):
        weights: tuple[float, ...] = parameter((), "-", "None")

    with pytest.raises(TypeError, match="give a default with an entry"):
        ParameterServer(make_node(), Empty)
