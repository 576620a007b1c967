"""Targets of ``sysid apply`` with services: a real node where its messages are there, else what its package does."""

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from geometry_msgs.msg import InertiaStamped
from sensor_msgs.msg import JointState

from sysid_ros.cli import apply
from sysid_ros.cli.apply import Admittance, Franka, UrDriver
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.errors import NotConfirmed, ParameterOutOfRange, SysidError
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.drivers.arm import ArmError
from sysid_ros.reports.estimate_yaml import ExportedPayload
from sysid_ros.reports.payload import Bounded, summarize
from sysid_ros.reports.payload_files import Load
from sysid_ros.ros.services import fill_message

TENSOR = np.array([[0.04, 0.001, 0.002], [0.001, 0.05, 0.003], [0.002, 0.003, 0.03]])
WHOLE = from_com_form(2.5, [0.01, -0.02, 0.1], TENSOR)
HAND = Load.from_parameters(from_com_form(0.73, [-0.01, 0.0, 0.03], np.diag([0.001, 0.0025, 0.0017])), "flange")


def exported(width=1e-7):
    body = Bounded(WHOLE, WHOLE - width, WHOLE + width)
    summary = summarize(body, (np.eye(3), np.zeros(3)), "flange")
    return ExportedPayload(Path("estimate.yaml"), "franka_fr3", "today", summary, summary)


def options(**own):
    return argparse.Namespace(dry_run=False, yes=True, **own)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(apply, "SETTLE", 0.3)


class Request:
    """Of franka_msgs/srv/SetLoad in franka_ros2: float64 mass, float64[3] center_of_mass, float64[9] load_inertia."""

    def get_fields_and_field_types(self):
        return {"mass": "double", "center_of_mass": "double[3]", "load_inertia": "double[9]"}


class FrankaControl:
    """franka_ros2 over libfranka: what set_load refuses, and what the state broadcaster publishes."""

    def __init__(self, hand=HAND):
        self.load, self.hand, self.is_held, self.speed, self.forgets = None, hand, False, 0.0, False

    def call(self, kind, name, fields, advice):
        assert (kind, name) == ("franka_msgs/srv/SetLoad", "/left/service_server/set_load")
        request = fill_message(Request(), fields)
        assert (len(request.center_of_mass), len(request.load_inertia)) == (3, 9)
        tensor = np.reshape(request.load_inertia, (3, 3), order="F")
        if self.is_held or np.linalg.eigvalsh(tensor)[0] <= 0.0:
            raise NotConfirmed(f"the service {name} answered that it failed (command exception error); {advice}")
        if not self.forgets:
            self.load = Load(request.mass, np.array(request.center_of_mass), tensor, "flange")

    def receive(self, kind, topic):
        assert (kind, topic) == (
            "franka_msgs/msg/FrankaRobotState", "/left/franka_robot_state_broadcaster/robot_state",
        )  # fmt: skip
        bodies = {}
        for name, one in (("inertia_ee", self.hand), ("inertia_load", self.load)):
            message = InertiaStamped()
            if one is not None:
                message.inertia.m, com = one.mass, message.inertia.com
                com.x, com.y, com.z = one.com
                for entry, value in zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), one.entries, strict=True):
                    setattr(message.inertia, entry, value)
            bodies[name] = message
        return SimpleNamespace(**bodies, measured_joint_state=JointState(velocity=[0.0, -self.speed]))


def give(kind, caller, width=1e-7, **own):
    target = kind(options(**own), exported(width))
    target.__dict__["_caller"] = caller
    return target.run()


@pytest.mark.parametrize("hand", [HAND, None])
def test_franka_gets_the_load_that_its_end_effector_lacks(hand, capsys):
    control = FrankaControl(hand)
    assert give(Franka, control, namespace="/left/") == ExitStatus.OK
    sent = control.load.parameters + (0.0 if hand is None else hand.parameters)
    np.testing.assert_allclose(sent, WHOLE, atol=1e-6)
    assert "Read back:  2.500 kg" in capsys.readouterr().out


def test_franka_gets_an_inertia_even_where_it_is_not_well_known(capsys):
    hand = Load(1.0, HAND.com, 0.05 * np.eye(3), "flange")  # has more inertia than is left for the load
    control, loose = FrankaControl(hand), np.append(np.full(4, 1e-7), np.full(6, 0.03))
    assert give(Franka, control, width=loose, namespace="left") == ExitStatus.OK
    assert "as a mass without one is refused" in capsys.readouterr().out
    np.testing.assert_allclose((control.load.parameters + hand.parameters)[:4], WHOLE[:4], atol=1e-6)
    with pytest.raises(ArmError, match="is no part of tool and payload"):
        give(Franka, FrankaControl(hand), namespace="left")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"is_held": True}, NotConfirmed, "command exception error.; no controller may hold the arm"),
        ({"forgets": True}, NotConfirmed, r"franka_ros2 has not taken the payload: mass \[kg\] differs by 1.77"),
        ({"speed": 0.2}, ArmError, r"the arm moves \(0.2 rad/s\)"),
        ({"hand": Load.from_parameters(1.2 * WHOLE, "flange")}, ArmError, "set in Desk .3.000 kg. is no part"),
    ],
)
def test_franka_has_nothing_else_afterwards(change, error, message):
    control = FrankaControl()
    for name, value in change.items():
        setattr(control, name, value)
    with pytest.raises(error, match=message):
        give(Franka, control, namespace="left")
    assert control.load is None


def test_another_definition_of_set_load_is_named(monkeypatch):
    older = {"mass": "double", "F_x_center_load": "double[3]", "load_inertia": "double[9]"}
    monkeypatch.setattr(Request, "get_fields_and_field_types", lambda _: older)
    with pytest.raises(ParameterOutOfRange, match="center_of_mass.*one of mass, F_x_center_load, load_inertia"):
        give(Franka, FrankaControl(), namespace="left")


@pytest.mark.parametrize("has_inertia", [False, True])
def test_the_driver_of_universal_robots_gets_the_inertia_where_its_messages_have_it(has_inertia, capsys):
    asked = []
    driver = SimpleNamespace(
        has_fields=lambda kind, names: has_inertia, call=lambda kind, name, fields: asked.append((name, fields))
    )
    own = {"robot_ip": None, "service": "/set", "unconfirmed": True}
    assert give(UrDriver, driver, **own) == ExitStatus.OK
    ((name, fields),) = asked
    assert name == "/set" and fields["mass"] == 2.5 and fields["center_of_gravity"]["z"] == pytest.approx(0.1)
    entries = [fields.get(f"i{axes}") for axes in ("xx", "yy", "zz", "xy", "xz", "yz")]
    wanted = [0.04, 0.05, 0.03, 0.001, 0.002, 0.003]
    assert entries == (pytest.approx(wanted, abs=1e-6) if has_inertia else [None] * 6)
    assert "/set says that it was set. It was not read back." in capsys.readouterr().out


@pytest.mark.processes
def test_an_admittance_controller_has_the_weight_afterwards(spinning, capsys):
    """Parameters of this name and type are those of ros2_controllers; the services are the ones of any node."""
    from rcl_interfaces.msg import SetParametersResult
    from rclpy.parameter import Parameter

    with spinning("admittance_controller") as node:
        with pytest.raises(SysidError, match="it is no admittance controller"):
            give_parameters()
        for name, value in (("frame.id", "sensor"), ("CoG.pos", [0.0, 0.0, 0.0]), ("CoG.force", 0.0)):
            node.declare_parameter(f"gravity_compensation.{name}", value)
        assert give_parameters() == ExitStatus.OK
        found = [node.get_parameter(f"gravity_compensation.{n}").value for n in ("frame.id", "CoG.pos", "CoG.force")]
        assert (found[0], list(found[1])) == ("flange", pytest.approx([0.01, -0.02, 0.1], abs=1e-6))
        assert found[2] == pytest.approx(9.81 * 2.5)
        out = capsys.readouterr().out
        assert "seen from 'sensor'. An active one gives way" in out and "from its next activation on" in out
        node.declare_parameter("enable_parameter_update_without_reactivation", True)
        assert give_parameters() == ExitStatus.OK and "next activation" not in capsys.readouterr().out
        node.add_on_set_parameters_callback(lambda _: SetParametersResult(successful=False, reason="read only"))
        with pytest.raises(NotConfirmed, match="answered that it failed .read only."):
            give_parameters()
    assert Parameter.Type.STRING.value == 4 and Parameter.Type.DOUBLE.value == 3
    with pytest.raises(SysidError, match="no server offers the service"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sysid_ros.ros.services.PATIENCE", 0.2)
        give_parameters()


def give_parameters():
    target = Admittance(options(controller="/admittance_controller"), exported())
    with target.stack:
        return target.run()
