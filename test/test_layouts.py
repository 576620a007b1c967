"""Layouts for Foxglove and PlotJuggler, and the QoS of a replay: topics and fields in them exist."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import DriverStatus, ParameterEstimate

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config" / "view"
TYPES = {
    "/estimator/estimate": ParameterEstimate,
    "/arm_driver/status": DriverStatus,
    "/joint_states": JointState,
    "/robot_description": String,
    "/monitor/markers": MarkerArray,
    "/monitor/plan_markers": MarkerArray,
    "/monitor/scene_markers": MarkerArray,
}


@pytest.fixture(scope="module")
def declared():
    """Published topics on the page of nodes, which a test of its own keeps equal to what nodes declare."""
    found, node = set(), ""
    for line in (ROOT / "docs" / "nodes.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            node = line[4:]
        elif row := re.match(r"\| publishes \| `([^`]+)` \| `([^`]+)` \|", line):
            found.add(("/" + row[1].replace("~", node), row[2]))
    return found


@pytest.mark.parametrize("topic", TYPES)
def test_topics_of_layouts_are_published(topic, declared):
    kind = TYPES[topic]
    assert (topic, f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}") in declared


def check(path):
    """Follow a path as tools write it, ``/topic.field[3]`` or ``/topic/field[3]``, through the message."""
    topic = next((one for one in TYPES if path == one or path.startswith((one + ".", one + "/"))), None)
    assert topic, f"{path} is of a topic that is not in this test"
    rest = path[len(topic) + 1 :]
    if not rest:
        return
    name, index = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", rest).groups()
    kind = TYPES[topic].get_fields_and_field_types()[name]
    assert (index is not None) == ("[" in kind or kind.startswith("sequence")), f"{path}: {name} is {kind}"
    length = re.search(r"\[(\d+)\]", kind)
    assert not (index and length) or int(index) < int(length.group(1)), path


def test_paths_of_the_foxglove_layout_exist():
    layout = json.loads((CONFIG / "foxglove.json").read_text(encoding="utf-8"))
    panels = layout["configById"]
    placed = set(re.findall(r"'([\w]+!\w+)'", str(layout["layout"])))
    assert placed == set(panels), "every panel has a place"
    paths = [line["value"] for panel in panels.values() for line in panel.get("paths", ())]
    paths += [panel["topicPath"] for panel in panels.values() if "topicPath" in panel]
    paths += list(panels["3D!arm"]["topics"])
    assert len(paths) > 30
    for path in paths:
        check(path)


def test_curves_of_the_plotjuggler_layout_exist():
    root = ElementTree.parse(CONFIG / "plotjuggler.xml").getroot()
    curves = [curve.get("name") for curve in root.iter("curve")]
    assert len(curves) > 30
    for curve in curves:
        check(curve)
    for splitter in root.iter("DockSplitter"):
        assert len(splitter) == int(splitter.get("count")) == len(splitter.get("sizes").split(";"))


def test_a_wrong_path_is_seen():
    for path in ("/estimator/estimate.lower[10]", "/estimator/estimate.mass", "/arm_driver/status.progress[0]", "/tf"):
        with pytest.raises((AssertionError, KeyError)):
            check(path)


def test_a_replay_offers_what_late_comers_ask_for():
    profiles = yaml.safe_load((CONFIG / "replay_qos.yaml").read_text(encoding="utf-8"))
    assert set(profiles) == {"/tf_static", "/robot_description", *(topic for topic in TYPES if "markers" in topic)}
    assert all(profile["durability"] == "transient_local" for profile in profiles.values())
