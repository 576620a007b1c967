"""The safe planner proves its plans for the control law that the driver says it runs."""

from types import SimpleNamespace

import numpy as np
import pytest
from doubles import make_estimate
from node_bench import PATIENCE, Bench
from std_msgs.msg import Header

from sysid_msgs.msg import ControlLaw, DriverStatus
from sysid_msgs.srv import PlanTo
from sysid_ros.adapters.safe_planner import service as requests_module
from sysid_ros.adapters.safe_planner.scene import SceneStore
from sysid_ros.adapters.safe_planner.service import PlanRequests, SafePlannerParameters
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import GravityPid, RobustSettings
from sysid_ros.nodes.safe_planner import SafePlannerNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import certified_from_message, control_law_to_message
from sysid_ros.ros.other_nodes import wait_until

OTHER = RobustSettings(bandwidth=150.0, period=0.0012, delay=0.0012)


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    bench.run_active(SafePlannerNode())
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def known(robot):
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.1 * prior.box.radius).intersect(prior.box)
    return estimate_to_message(make_estimate(prior.nominal, box.lower, box.upper), 1)


def test_plans_are_for_the_law_of_the_driver(bench, robot, known):
    publisher = bench.node.create_publisher(ControlLaw, "arm_driver/control_law", qos.LATCHED)
    goal = robot.home + 0.05 * np.ones(robot.n)

    def plan():
        request = PlanTo.Request(
            joint_names=list(robot.joint_names), start_position=robot.home.tolist(), goal_position=goal.tolist(),
            duration=3.0, estimate=known,
        )  # fmt: skip
        return bench.call(PlanTo, "safe_planner/plan_to", request)

    def law_of_plan():
        return certified_from_message(plan().plan, robot.joint_names)[1].control_law

    assert law_of_plan() == RobustSettings().law  # nobody has said anything
    publisher.publish(control_law_to_message(OTHER.law))
    assert wait_until(lambda: law_of_plan() == OTHER.law, PATIENCE)
    publisher.publish(control_law_to_message(GravityPid(robot).law))
    assert wait_until(lambda: not plan().success, PATIENCE)
    assert "no other law has a proven tracking bound" in plan().message
    publisher.publish(control_law_to_message(RobustSettings().law))
    assert wait_until(lambda: plan().success and law_of_plan() == RobustSettings().law, PATIENCE)
    bench.node.create_publisher(ControlLaw, "arm_driver/control_law", qos.LATCHED).publish(ControlLaw())
    assert not wait_until(lambda: not plan().success, 1.0)  # of another publisher than the driver's


def test_certificates_are_made_for_the_time_of_the_loop_whatever_the_clock_is_set_to(robot, monkeypatch):
    values = SafePlannerParameters()
    requests = PlanRequests(robot, SceneStore(robot, values.fixed_scene()), values)
    steady, wall = 5_000_000_000, 1_700_000_000_000_000_000
    clock = SimpleNamespace(time_ns=lambda: wall, monotonic_ns=lambda: steady)
    monkeypatch.setattr(requests_module, "time", clock)
    assert requests._now() == 1e-9 * wall  # nobody has said anything else
    requests.on_driver_status(
        DriverStatus(mode=DriverStatus.MODE_HOLD, header=Header(stamp=stamp_to_message(wall + 60_000_000_000)))
    )
    wall -= 3_600_000_000_000
    steady += 250_000_000
    assert requests._now() == pytest.approx(1_700_000_060.25, abs=1e-6)
