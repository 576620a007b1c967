"""Message definitions as tools expect them."""

import pytest

from sysid_ros.core.common.errors import SysidError
from sysid_ros.reports.recordings.recording import SEPARATOR, message_definition


@pytest.fixture
def shares(tmp_path):
    files = {
        "first/a/msg/Top.msg": "# a comment std_msgs/No\nstd/Header header\nInner[] many   # text\n"
        "other_pkg/Deep<=3 x\nfloat64[<=5] bounded\nstring<=10[4] names\nuint8 CONSTANT=3\nint32 x 5\n",
        "first/a/msg/Inner.msg": "b/Leaf[3] leaves\nbool flag\n",
        "second/b/msg/Leaf.msg": "float64 value\n",
        "second/std/msg/Header.msg": "b/Leaf stamp\nstring frame_id\n",
        "second/other_pkg/msg/Deep.msg": "Top2 sibling\n",
        "second/other_pkg/msg/Top2.msg": "time_t/Nothing[] items\n",
        "second/time_t/msg/Nothing.msg": "\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [tmp_path / "first", tmp_path / "second"]


def test_everything_used_is_there_once(shares):
    first, *others = message_definition("a/msg/Top", shares).split(SEPARATOR + "\n")
    assert first.startswith("# a comment") and SEPARATOR == "=" * 80
    names = [part.splitlines()[0] for part in others]
    assert sorted(names) == sorted(
        f"MSG: {name}"
        for name in ("std/Header", "a/Inner", "b/Leaf", "other_pkg/Deep", "other_pkg/Top2", "time_t/Nothing")
    )
    assert "float64 value" in others[names.index("MSG: b/Leaf")]


def test_a_missing_definition_names_message_and_folders(shares):
    (shares[1] / "b" / "msg" / "Leaf.msg").unlink()
    with pytest.raises(SysidError, match="no definition of message b/msg/Leaf found; looked into .*first.*second"):
        message_definition("a/msg/Top", shares)


def test_installed_messages_are_found_and_parse():
    pytest.importorskip("sensor_msgs")
    from mcap_ros2._dynamic import generate_dynamic

    text = message_definition("sensor_msgs/msg/JointState")
    assert "MSG: builtin_interfaces/Time" in text and "MSG: std_msgs/Header" in text
    assert "sensor_msgs/msg/JointState" in generate_dynamic("sensor_msgs/msg/JointState", text)
