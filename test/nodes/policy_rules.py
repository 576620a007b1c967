"""What the policy for SROS2 allows a node, in the names that the ROS graph shows."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

PATH = Path(__file__).parents[2] / "config" / "security" / "sysid_ros.policy.xml"
RIGHTS = ("publish", "subscribe", "reply", "request", "execute", "call")


def read_policy(namespace="/"):
    """Names by node and right, as SROS2 reads them; the namespace is put in as `make keystore ROBOT=...` does."""
    rules = {}
    for enclave in ElementTree.parse(PATH).getroot().find("enclaves"):
        (profile,) = enclave.iter("profile")
        assert profile.get("ns") == "/" and enclave.get("path") == f"/sysid_ros/{profile.get('node')}"
        names = rules.setdefault(profile.get("node"), {right: set() for right in RIGHTS})
        for group in profile:
            ((right, word),) = group.attrib.items()
            assert word == "ALLOW"
            names[right] |= {full_name(item.text, profile.get("node"), namespace) for item in group}
    return rules


def full_name(name, node, namespace):
    space = namespace.rstrip("/")
    if name.startswith("/"):
        return name
    return f"{space}/{node}{name[1:]}" if name.startswith("~") else f"{space}/{name}"


def used_by(watcher, node, namespace):
    """What a running node does, as the graph shows it: the parts of an action under the action's name."""
    found = {right: set() for right in RIGHTS}
    asked = {
        "publish": watcher.get_publisher_names_and_types_by_node,
        "subscribe": watcher.get_subscriber_names_and_types_by_node,
        "reply": watcher.get_service_names_and_types_by_node,
        "request": watcher.get_client_names_and_types_by_node,
    }
    for right, ask in asked.items():
        for name, _ in ask(node, namespace):
            action, separator, _ = name.partition("/_action/")
            is_served = right in ("publish", "reply")
            found[("execute" if is_served else "call") if separator else right].add(action)
    return found
