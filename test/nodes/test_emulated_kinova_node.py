"""The driver node with the driver of a Gen3, connected over TCP and UDP to an emulated base."""

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from node_bench import PATIENCE, Bench, DriverProbe, Trusting
from std_srvs.srv import Trigger
from textbook import load_textbook

from sysid_msgs.msg import DriverStatus, SimulationTruth
from sysid_ros.core.collision.scene import Scene
from sysid_ros.drivers.network import free_port
from sysid_ros.emulators.nodes.arm_emulator import ArmEmulatorNode
from sysid_ros.nodes.arm_driver import ArmDriverNode
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import wait_until


@pytest.fixture
def bench():
    given = {
        "port": free_port(), "port_realtime": free_port(), "password": "secret",
        "arm_emulator:payload": "'0.6'", "arm_emulator:patience": 2.5, "arm_emulator:serial_number": "K7",
        "arm_driver:mode": "emulated", "arm_driver:cycle_timeout": 1.0, "arm_driver:session_timeout": 3.0,
        "arm_driver:late_limit": 5.0, "arm_driver:heartbeat_timeout": 5.0, "arm_driver:stamp_source": "frames",
    }  # fmt: skip
    bench = Bench(*(word for name, value in given.items() for word in ("-p", f"{name}:={value}")))
    yield bench
    bench.close()


def test_the_arm_is_held_found_again_after_a_restart_of_its_base_and_released(bench):
    emulator = bench.run(ArmEmulatorNode())
    bench.run_active(ArmDriverNode(Trusting))
    robot = load_textbook()
    probe = DriverProbe(bench, robot, scene=Scene())
    status = probe.wait_for(DriverStatus.MODE_HOLD)
    assert status.serial_number == "K7"  # asked of the base: nobody has told the driver
    assert status.is_simulated and tuple(status.joint_names) == robot.joint_names
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.02)
    truth = bench.listen(SimulationTruth, "arm_driver/truth", qos.LATCHED).wait()
    assert truth.valid and truth.payload[0] == pytest.approx(0.6)
    found = bench.listen(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS).wait(lambda m: len(m.status[0].values) > 20)
    values = {one.key: one.value for one in found.status[0].values}
    assert values["arm state"] == "SERVOING_LOW_LEVEL" and int(values["replies"]) > 100
    assert {"replies missing", "round trip p99 [s]", "stamps"} <= set(values)

    start_again = bench.kill_controller(emulator)
    probe.wait_for(DriverStatus.MODE_FAULT)
    start_again()
    assert wait_until(lambda: bench.call(Trigger, "arm_driver/reconnect").success, PATIENCE)
    probe.wait_for(DriverStatus.MODE_HOLD)

    heard = len(probe.status.messages)
    assert bench.change_state("arm_driver", "deactivate")
    probe.status.wait(lambda status: status.mode == DriverStatus.MODE_IDLE, after=heard)
