"""What ``ros2 lifecycle set /arm_driver shutdown`` does while the arm is held."""

import pytest
from node_bench import Bench, DriverProbe, Trusting

from sysid_msgs.msg import DriverStatus
from sysid_ros.nodes.arm_driver import ArmDriverNode


@pytest.fixture
def bench():
    bench = Bench("-p", "heartbeat_timeout:=2.0", "-p", "late_limit:=2.0")
    yield bench
    bench.close()


def test_shutdown_hands_the_arm_back_for_good(bench, robot):
    node = bench.run_active(ArmDriverNode(Trusting))
    driver = DriverProbe(bench, robot)
    driver.wait_for(DriverStatus.MODE_HOLD)
    count, loop = len(driver.status.messages), node._arm.loop
    assert loop.is_alive
    assert bench.change_state("arm_driver", "shutdown")
    status = driver.status.wait(lambda status: status.mode == DriverStatus.MODE_IDLE, after=count)
    assert status.text == "the driver is shut down"
    assert not loop.is_alive
    for transition in ("configure", "activate"):
        assert not bench.change_state("arm_driver", transition)
