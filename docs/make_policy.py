"""Writes config/security/sysid_ros.policy.xml: ``python docs/make_policy.py``. A test fails when it is not up to date.

The policy is made of what the code of each node offers and uses, as docs/nodes.md is, and of what follows below: what
every node has because it is one, and names that the code takes from parameters.
"""

from __future__ import annotations

import importlib
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from make_nodes import interfaces_of

from sysid_ros.processes import EMULATED, IDENTIFY, SPACE, Process, enclave_of

PATH = Path(__file__).parents[1] / "config" / "security" / "sysid_ros.policy.xml"

Rules = dict[tuple[str, str], set[str]]
"""Names by (kind, right): ("topic", "publish"), ("service", "reply"), ("action", "call") and so on."""

_RIGHTS = {
    "publishes": ("topic", "publish"),
    "subscribes": ("topic", "subscribe"),
    "offers service": ("service", "reply"),
    "offers action": ("action", "execute"),
    "calls service": ("service", "request"),
    "calls action": ("action", "call"),
}
_PARAMETERS = (
    "describe_parameters", "get_parameter_types", "get_parameters", "list_parameters", "set_parameters",
    "set_parameters_atomically",
)  # fmt: skip
_LIFECYCLE = (
    "change_state", "get_available_states", "get_available_transitions", "get_state", "get_transition_graph",
)  # fmt: skip
_EVERY_NODE: Rules = {
    ("topic", "publish"): {"/rosout", "/parameter_events", "~/alive"},
    ("topic", "subscribe"): {"/clock", "/parameter_events"},
    ("service", "reply"): {f"~/{name}" for name in (*_PARAMETERS, "get_type_description")},
}
_LIFECYCLE_NODE: Rules = {
    ("topic", "publish"): {"~/transition_event"},
    ("service", "reply"): {f"~/{name}" for name in _LIFECYCLE},
}
_WATCHED = ("arm_driver", "estimator", "safe_planner", "excitation_planner")
_BY_NODE: dict[str, Rules] = {
    # With an arm under ros2_control, by the defaults of the parameters; others have to be added.
    "arm_driver": {
        ("topic", "publish"): {"/effort_controller/commands"},
        ("topic", "subscribe"): {"joint_states", "/joint_states"},
        ("service", "request"): {"/effort_controller/get_parameters", "/controller_manager/switch_controller"},
    },
    "identification": {("topic", "subscribe"): {"joint_states", *(f"{name}/alive" for name in _WATCHED)}},
    "free_flyer_driver": {("topic", "publish"): {"/tf"}},
}
_WITHIN = {"arm_driver", "excitation_planner", "safe_planner", "estimator"}
"""Nodes whose services the identification calls; an operator calls those alone that are named below."""
_FOR_OPERATORS = {"arm_driver": {"brake", "guide", "reconnect", "set_payload"}, "safe_planner": {"cancel"}}
"""Services of these nodes that an operator may call."""


def rules_of(process: Process) -> Rules:
    """Return what a node may do."""
    module, executable = importlib.import_module(process.module), process.executable
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for what, name, _ in interfaces_of(module):
        found[_RIGHTS[what]].add(name)
    parts = [_EVERY_NODE, _BY_NODE.get(executable, {})]
    parts += [_LIFECYCLE_NODE] if hasattr(module, "LifecycleNode") else []
    for part in parts:
        for right, names in part.items():
            found[right] |= names
    return found


def operator_rules(nodes: dict[str, Rules]) -> Rules:
    """Return what people and their tools may do: hear all, send goals, stop and guide the arm."""
    services, actions = set(), set()
    for name, rules in nodes.items():
        common = {*_PARAMETERS, *_LIFECYCLE, "get_type_description"}
        offered = {service.removeprefix("~/") for service in rules[("service", "reply")]}
        allowed = (common | _FOR_OPERATORS.get(name, set())) & offered if name in _WITHIN else offered
        services |= {f"{name}/{service}" for service in allowed}
        actions |= {f"{name}/{action.removeprefix('~/')}" for action in rules.get(("action", "execute"), set())}
    return {
        # RViz makes the last three, whether or not they are used.
        ("topic", "publish"): {"/rosout", "/parameter_events", "/clicked_point", "/goal_pose", "/initialpose"},
        ("topic", "subscribe"): {"*"},
        ("service", "request"): services,
        ("action", "call"): actions,
    }


def build_policy() -> str:
    """The text of the policy."""
    nodes = {one.executable: rules_of(one) for one in (*IDENTIFY, *EMULATED, *SPACE)}
    publisher: Rules = {
        ("topic", "publish"): {"/rosout", "/parameter_events", "/tf", "/tf_static", "~/robot_description"},
        ("topic", "subscribe"): {"/clock", "/parameter_events", "joint_states"},
        ("service", "reply"): _EVERY_NODE[("service", "reply")],
    }
    policy = ElementTree.Element("policy", version="0.2.0")
    policy.append(ElementTree.Comment(" Made by docs/make_policy.py from the code of the nodes; change it there. "))
    enclaves = ElementTree.SubElement(policy, "enclaves")
    for name, rules in {**nodes, "robot_state_publisher": publisher, "operator": operator_rules(nodes)}.items():
        enclave = ElementTree.SubElement(enclaves, "enclave", path=enclave_of(name))
        profile = ElementTree.SubElement(ElementTree.SubElement(enclave, "profiles"), "profile", ns="/", node=name)
        for (kind, right), names in sorted(rules.items()):
            group = ElementTree.SubElement(profile, f"{kind}s", {right: "ALLOW"})
            for text in sorted(names):
                ElementTree.SubElement(group, kind).text = text
    ElementTree.indent(policy)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(policy, "unicode") + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(build_policy())
    sys.stdout.write(f"{PATH} written\n")
