"""What ``sysid apply`` gives to a controller of Universal Robots, over TCP to an emulated one, and what it refuses."""

import dataclasses
import threading

import numpy as np
import pytest
import yaml

from sysid_ros.cli import apply
from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers import universal_robots
from sysid_ros.drivers.arm import ControllerPayload
from sysid_ros.drivers.kinova_kortex.enums import ArmState, Function
from sysid_ros.drivers.kinova_kortex.frame import encode, parse
from sysid_ros.emulators.kortex.base import KortexBase
from sysid_ros.emulators.kortex.server import EmulatorServer, build_base
from sysid_ros.emulators.program import EmulatorSetup
from sysid_ros.emulators.universal_robots import ControllerState, EmulatedController
from sysid_ros.reports.estimate_yaml import estimate_text, read_exported, read_summary
from sysid_ros.reports.payload import exported_payload, felt_torques, summarize_behind_flange, tool_parameters
from sysid_ros.reports.payload_files import Load, kuka_load_data


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    made = tmp_path_factory.mktemp("results")
    (made / "estimate.yaml").write_text(estimate_text(result))
    return made


@pytest.fixture
def controller(monkeypatch):
    monkeypatch.setattr(apply, "SETTLE", 0.3)
    served, ended, said = EmulatedController(ControllerState(), 0, 0, lambda text: said.append(text)), [], []
    thread = threading.Thread(target=served.run, args=(60.0, lambda: not ended))
    thread.start()
    served.said = said
    yield served
    ended.append(True)
    thread.join()
    served.close()


def run(controller, folder, *words):
    ports = ["--script-port", str(controller.ports[0]), "--rtde-port", str(controller.ports[1])]
    return door.main(["apply", "ur", str(folder), "--robot-ip", "127.0.0.1", *ports, "--yes", *words])


def test_a_result_is_read_back_from_its_file(result, folder):
    exported = read_exported(folder)
    wanted = summarize_behind_flange(result)
    for name in ("parameters", "com", "inertia_com", "principal_moments"):
        for part in ("values", "lower", "upper"):
            expected = getattr(getattr(wanted, name), part)
            assert getattr(getattr(exported.behind_flange, name), part) == pytest.approx(expected), name
    assert exported.behind_flange.frame == result.robot.flange_frame and exported.robot == "kinova_gen3_2f85"
    data = yaml.safe_load((folder / "estimate.yaml").read_text())["payload"]
    assert read_summary(data["at_tool"]).mass.values == pytest.approx(float(exported.at_tool.mass.values))


def test_the_controller_has_tool_and_payload_afterwards(result, folder, controller, capsys):
    body = exported_payload(result.robot, result.estimate).values + tool_parameters(result.robot)
    assert run(controller, folder) == ExitStatus.OK
    sent = Load.from_summary(read_exported(folder).behind_flange)
    assert controller.state.mass == pytest.approx(sent.mass, abs=1e-9) and sent.mass == round(sent.mass, 3)
    assert sent.mass == pytest.approx(body[0], abs=5e-4)
    assert controller.state.com == pytest.approx(sent.com, abs=1e-9)
    out = capsys.readouterr().out
    assert "It has now: 0.000 kg" in out and f"Read back:  {body[0]:.3f} kg" in out and "Confirmed" in out
    assert out.index("mass [kg]: ") < out.index("It has now") < out.index("Read back")
    assert np.all(np.array(controller.state.inertia) == 0.0), "not well known, and left out"
    assert "the inertia is left out" in out


def test_a_dry_run_sends_nothing_and_without_a_terminal_nobody_is_asked(folder, controller, capsys):
    assert run(controller, folder, "--dry-run") == ExitStatus.OK
    assert "As: set_target_payload(" in capsys.readouterr().out
    words = ["ur", str(folder), "--robot-ip", "127.0.0.1", "--rtde-port", str(controller.ports[1])]
    assert door.main(["apply", *words]) == ExitStatus.BAD_INPUT and "missing --yes" in capsys.readouterr().err
    assert controller.state.mass == 0.0 and not controller.said


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"is_remote": False}, ExitStatus.FAILED, "not confirmed: 127.0.0.1 has not taken the payload: mass"),
        ({"rated": 1.0}, ExitStatus.FAILED, "centre of gravity [m] differs by"),
        ({"speeds": [0.0, 0.0, -0.2, 0.0, 0.0, 0.0]}, ExitStatus.BAD_INPUT, "the arm moves (0.2 rad/s)"),
        ({"has_inertia": False}, ExitStatus.OK, ""),
    ],
)
def test_what_the_controller_does_not_take_is_told(folder, controller, capsys, change, status, message):
    for name, value in change.items():
        setattr(controller.state, name, value)
    assert run(controller, folder) == status
    assert message in capsys.readouterr().err
    assert (controller.state.mass > 0.0) == (status == ExitStatus.OK)


def test_who_cannot_be_reached_is_named(folder, controller, capsys):
    closed = ["ur", str(folder), "--robot-ip", "127.0.0.1", "--rtde-port", "1", "--yes"]
    assert door.main(["apply", *closed]) == ExitStatus.BAD_INPUT
    assert "the controller at 127.0.0.1:1: cannot be reached" in capsys.readouterr().err
    assert door.main(["apply", "ur", str(folder), "--robot-ip", "", "--dry-run"]) == ExitStatus.BAD_INPUT
    assert "--robot-ip ''" in capsys.readouterr().err
    scripts = str(controller.ports[0])  # it takes programs and says nothing
    monkey = ["ur", str(folder), "--robot-ip", "127.0.0.1", "--rtde-port", scripts, "--yes"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(universal_robots, "TIMEOUT", 0.2)
        assert door.main(["apply", *monkey]) == ExitStatus.BAD_INPUT
    assert "did not answer within 0.2 s" in capsys.readouterr().err


def test_results_that_must_not_be_used_are_refused(result, folder, tmp_path, capsys):
    data = yaml.safe_load((folder / "estimate.yaml").read_text())
    loose, narrow = data["payload"]["at_tool"]["com_m"], data["narrower_than_prior"]
    cases = {
        "missing; give a folder of results": None,
        "not usable (the data contradict": data | {"is_usable": False, "alarm": "the data contradict"},
        "the bounds of mass are no narrower": data | {"narrower_than_prior": narrow | {"mass": False}},
        "of an older version; make it again with: sysid report": data | {"payload": {"at_tool": {}}},
        "damaged (KeyError": data | {"payload": {"behind_flange": {}}},
        "no result of an identification": {"format": "other"},
    }  # fmt: skip
    for k, (message, content) in enumerate(cases.items()):
        made = tmp_path / str(k)
        made.mkdir()
        if content is not None:
            (made / "estimate.yaml").write_text(yaml.safe_dump(content))
        assert door.main(["apply", "ur", str(made), "--robot-ip", "127.0.0.1", "--dry-run"]) == ExitStatus.BAD_INPUT
        assert message in capsys.readouterr().err
    loose["upper"][0] += 0.05
    (tmp_path / "estimate.yaml").write_text(yaml.safe_dump(data))
    words = ["ur", str(tmp_path), "--robot-ip", "127.0.0.1", "--dry-run"]
    assert (
        door.main(["apply", *words]) == ExitStatus.BAD_INPUT
        and "centre of mass not well known" in capsys.readouterr().err
    )
    assert door.main(["apply", *words, "--accept-uncertain"]) == ExitStatus.OK


def test_the_drivers_way_says_what_is_missing(folder, capsys):
    assert door.main(["apply", "ur-driver", str(folder)]) == ExitStatus.BAD_INPUT
    assert "missing --robot-ip: expected the controller's address" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "ur_msgs", None)
        assert door.main(["apply", "ur-driver", str(folder), "--unconfirmed", "--yes"]) == ExitStatus.BAD_INPUT
    assert "the messages ur_msgs are not installed" in capsys.readouterr().err
    assert door.main(["apply", "moveit", str(folder)]) == ExitStatus.BAD_INPUT
    assert "payload_moveit.yaml: missing; the report says why" in capsys.readouterr().err


def test_numbers_that_differ_or_are_none_are_differences():
    load = Load(2.0, np.array([0.0, 0.0, 0.1]), np.diag([0.01, 0.02, 0.03]), "flange")
    same = ControllerPayload(2.0, load.com, np.array([0.01, 0.02, 0.03, 0.0, 0.0, 0.0]), 0.0)
    assert apply._differences(load, True, same) == []
    for change in ({"mass": 2.002}, {"mass": np.nan}, {"com": load.com + 2e-4}, {"inertia": same.inertia[::-1]}):
        assert len(apply._differences(load, True, dataclasses.replace(same, **change))) == 1, change
    assert apply._differences(load, False, dataclasses.replace(same, inertia=np.zeros(6))) == []


@pytest.mark.parametrize(
    "call",
    [
        "set_target_payload(2.0)", "set_target_payload(2.0, [0, 0])", "set_target_payload(-1.0, [0, 0, 0])",
        "set_target_payload(2.0, [0, 0, 9])", "set_target_payload(2.0, [0, 0, 0], [-1, 0, 0, 0, 0, 0])",
        "set_target_payload(1e999, [0, 0, 0])", "movej([0, 0, 0, 0, 0, 0])", "set_payload(1, [0, 0, 0], [0])",
        "set_target_payload(os.system, [0, 0, 0])",
    ],
)  # fmt: skip
def test_the_emulated_controller_refuses_what_a_real_one_does(call):
    state = ControllerState(mass=1.0)
    with pytest.raises(SysidError):
        state.run(call)
    assert state.mass == 1.0


def test_a_load_that_is_entered_is_checked_against_the_bounds(folder, capsys):
    load = read_exported(folder).behind_flange

    def check(mass, com, *words):
        values = ["--mass", str(mass), "--com", *map(str, com), *words]
        status = door.main(["check-load", str(folder), *values])
        out = capsys.readouterr().out
        torques = [float(line.split()[1]) for line in out.splitlines() if line.startswith("joint_")]
        return status, [line.split()[-1] for line in out.splitlines() if line.startswith(("mass", "CoM"))], max(torques)

    right, wrong = float(load.mass.values), load.com.values + [0.0, 0.2, 0.0]
    status, inside, little = check(right, load.com.values)
    assert status == ExitStatus.OK and inside == ["yes"] * 4
    status, inside, much = check(right, wrong)
    assert status == ExitStatus.FAILED and inside == ["yes", "yes", "NO", "yes"]
    assert much == pytest.approx(0.2 * 9.81 * right, rel=0.3) and much > little + 2.0
    status, inside, none = check(0.0, load.com.values, "--posture", *["0"] * 7)
    assert status == ExitStatus.FAILED and inside[0] == "NO" and none < much, "a Gen3 that stands upright feels little"
    words = ["check-load", str(folder), "--mass", "1", "--com", "0", "0", "0", "--posture", "0", "0"]
    assert door.main(words) == ExitStatus.BAD_INPUT and "expected 7 angles: joint_1" in capsys.readouterr().err


@pytest.fixture
def base(monkeypatch):
    monkeypatch.setattr(apply, "SETTLE", 0.3)
    server, ended = EmulatorServer(build_base(EmulatorSetup("kinova_gen3_2f85"))), []

    def serve():
        while not ended:
            server.cycle()

    thread = threading.Thread(target=serve)
    thread.start()
    yield server
    ended.append(True)
    thread.join()
    server.close()


def give_kortex(server, folder, *words):
    ports = ["--port", str(server.address[1]), "--port-realtime", str(server.address_realtime[1])]
    return door.main(["apply", "kortex", str(folder), "--robot-ip", "127.0.0.1", *ports, "--yes", *words])


def has_tool(server, mass, **frame):
    """Give the base a tool as Kinova's Web App does."""
    data = encode("ToolConfiguration", tool_transform=frame, tool_mass=mass, tool_mass_center={"z": 0.058})
    server.base.load[Function.GET_TOOL_CONFIGURATION] = data


def test_the_base_of_a_gen3_gets_the_payload_that_its_tool_lacks(folder, base, capsys):
    has_tool(base, 0.9, z=0.12, theta_z=90.0)
    whole = Load.from_summary(read_exported(folder).behind_flange)
    assert give_kortex(base, folder, "--dry-run") == ExitStatus.OK and len(base.base.load) == 1
    assert give_kortex(base, folder) == ExitStatus.OK
    out = capsys.readouterr().out
    assert "It has now: 0.900 kg at [0.0000, 0.0000, 0.0580] m" in out and f"Read back:  {whole.mass:.3f} kg" in out
    payload = parse("PayloadInformation", base.base.load[Function.GET_PAYLOAD_INFORMATION])
    x, y, z = (whole.mass * whole.com - [0.0, 0.0, 0.9 * 0.058]) / (whole.mass - 0.9) - [0.0, 0.0, 0.12]
    center = payload.payload_mass_center
    assert payload.payload_mass == pytest.approx(whole.mass - 0.9, abs=1e-6)
    assert (center.x, center.y, center.z) == pytest.approx((y, -x, z), abs=1e-6)  # the tool frame is turned by 90 deg
    assert give_kortex(base, folder, "--tool") == ExitStatus.OK
    tool = parse("ToolConfiguration", base.base.load[Function.GET_TOOL_CONFIGURATION])
    payload = parse("PayloadInformation", base.base.load[Function.GET_PAYLOAD_INFORMATION])
    assert (tool.tool_mass, payload.payload_mass) == (pytest.approx(whole.mass), 0.0)
    assert (tool.tool_transform.z, tool.tool_transform.theta_z) == (pytest.approx(0.12), 90.0), "the frame stays"


@pytest.mark.parametrize(
    ("tool", "status", "message"),
    [
        ((9.0, {}), ExitStatus.BAD_INPUT, "its tool of 9.000 kg is heavier"),
        ((0.9, {"theta_x": 90.0, "theta_z": 90.0}), ExitStatus.BAD_INPUT, "turned about several axes"),
        ((float("nan"), {}), ExitStatus.BAD_INPUT, "its tool of nan kg"),
    ],
)
def test_a_base_whose_tool_cannot_be_counted_with_gets_nothing(folder, base, capsys, tool, status, message):
    has_tool(base, tool[0], **tool[1])
    assert give_kortex(base, folder) == status and message in capsys.readouterr().err
    assert Function.GET_PAYLOAD_INFORMATION not in base.base.load


def test_a_base_that_refuses_or_forgets_is_not_confirmed(folder, base, capsys, monkeypatch):
    assert give_kortex(base, folder, "--password", "wrong") == ExitStatus.BAD_INPUT
    assert "INVALID_PASSWORD" in capsys.readouterr().err
    monkeypatch.setattr(KortexBase, "state", ArmState.SERVOING_PLAYING_SEQUENCE)
    assert give_kortex(base, folder) == ExitStatus.BAD_INPUT
    assert "is SERVOING_PLAYING_SEQUENCE; nothing was sent" in capsys.readouterr().err
    monkeypatch.setattr(KortexBase, "state", ArmState.SERVOING_READY)
    keep = KortexBase._set_load
    monkeypatch.setattr(KortexBase, "_set_load", lambda *_: None)
    assert give_kortex(base, folder) == ExitStatus.FAILED
    assert "not confirmed: 127.0.0.1 has not taken the payload: mass [kg] differs" in capsys.readouterr().err
    wrong = encode("PayloadInformation", payload_mass=-1.0)
    monkeypatch.setattr(KortexBase, "_set_load", lambda self, function, _: keep(self, function, wrong))
    assert give_kortex(base, folder) == ExitStatus.FAILED and "INVALID_PARAM" in capsys.readouterr().err


def test_what_to_enter_in_sunrise_is_shown_with_the_check_that_sunrise_makes(folder, capsys):
    assert door.main(["apply", "kuka", str(folder)]) == ExitStatus.OK
    out, data = capsys.readouterr().out, kuka_load_data(Load.from_summary(read_exported(folder).behind_flange))
    assert f"As: M {data['M']:g}, X {data['X']:g}" in out and "Nothing is sent" in out
    load, robot = read_exported(folder).behind_flange, load_robot("kinova_gen3_2f85")
    torques = felt_torques(robot, load, Load.from_summary(load).parameters, robot.home)
    assert f"{torques.max():.2f}".rstrip("0") in out and "this load alone does not fail it" in out
