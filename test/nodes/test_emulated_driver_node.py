"""The driver node with the driver of a real arm, connected over UDP to an emulated controller."""

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from node_bench import PATIENCE, Bench, DriverProbe, Trusting
from std_srvs.srv import Trigger
from textbook import load_textbook, textbook_file

from sysid_msgs.msg import DriverStatus, SimulationTruth
from sysid_msgs.srv import SetPayload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.network import free_port
from sysid_ros.emulators.nodes.arm_emulator import ArmEmulatorNode
from sysid_ros.nodes.arm_driver import ArmDriverNode
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import wait_until

HOLD, IDLE, FAULT = (getattr(DriverStatus, f"MODE_{name}") for name in ("HOLD", "IDLE", "FAULT"))


@pytest.fixture
def bench():
    given = {
        "model": textbook_file("kuka_lbr_med7"), "port_id": free_port(), "send_period": 0.002,
        "arm_emulator:payload": "'0.6'", "arm_emulator:patience": 2.5,
        "arm_driver:mode": "emulated", "arm_driver:cycle_timeout": 1.0, "arm_driver:session_timeout": 3.0,
        "arm_driver:connect_timeout": 8.0,
        "arm_driver:late_limit": 5.0, "arm_driver:heartbeat_timeout": 5.0,
    }  # fmt: skip
    bench = Bench(*(word for name, value in given.items() for word in ("-p", f"{name}:={value}")))
    yield bench
    bench.close()


def test_the_arm_is_held_released_and_held_again(bench):
    emulator = bench.run(ArmEmulatorNode())
    bench.run_active(ArmDriverNode(Trusting))
    robot = load_textbook("kuka_lbr_med7")
    probe = DriverProbe(bench, robot, scene=Scene())
    status = probe.wait_for(HOLD)
    assert status.is_simulated and tuple(status.joint_names) == robot.joint_names
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.02)

    truth = bench.listen(SimulationTruth, "arm_driver/truth", qos.LATCHED).wait()
    assert truth.valid and truth.payload[0] == pytest.approx(0.6)
    refusal = bench.call(SetPayload, "arm_driver/set_payload", SetPayload.Request(operation=SetPayload.Request.DETACH))
    assert not refusal.success and "not simulated" in refusal.message

    found = bench.listen(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS).wait(lambda m: len(m.status[0].values) > 20)
    values = {one.key: one.value for one in found.status[0].values}
    assert values["session state"] == "COMMANDING_ACTIVE" and int(values["messages received"]) > 100
    assert {"messages lost", "sequence gaps", "connection quality", "reaction p99 [s]"} <= set(values)

    count = len(probe.status.messages)
    assert bench.change_state("arm_driver", "deactivate")
    status = probe.status.wait(lambda status: status.mode == IDLE, after=count)
    assert status.text == "the driver is deactivated"
    assert bench.change_state("arm_driver", "activate")
    probe.wait_for(HOLD)

    start_again = bench.kill_controller(emulator)
    assert "no message of the controller" in probe.wait_for(FAULT).text
    with pytest.raises(SysidError, match="-9"):
        emulator._watch()

    refused = bench.call(Trigger, "arm_driver/reconnect")
    assert not refused.success and "no message of an FRI 1.15 controller came for" in refused.message
    start_again()
    assert wait_until(lambda: bench.call(Trigger, "arm_driver/reconnect").success, PATIENCE)
    probe.wait_for(HOLD)
