"""The launch file with ROS 2's own tools: ``launch_test test/launch_identify.py``, or by test_ros_tools.py."""

import time
import unittest

import launch_testing.actions
import launch_testing.asserts
import rclpy
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from sysid_ros.processes import IDENTIFY
from sysid_ros.resources import resource

PATIENCE = 60.0
"""How long all nodes together may take to come [s]."""


def generate_test_description():
    source = PythonLaunchDescriptionSource(str(resource("launch/identify.launch.py")))
    arguments = {"mode": "mock", "model": "kinova_gen3", "record": "false", "robot_name": "tried"}
    return LaunchDescription([
        IncludeLaunchDescription(source, launch_arguments=arguments.items()),
        launch_testing.actions.ReadyToTest(),
    ])  # fmt: skip


class WhileItRuns(unittest.TestCase):
    def test_every_node_comes_in_the_namespace(self):
        wanted = {process.executable for process in IDENTIFY}
        rclpy.init()
        node = rclpy.create_node("watcher")
        try:
            end, found = time.monotonic() + PATIENCE, set()
            while not wanted <= found and time.monotonic() < end:
                rclpy.spin_once(node, timeout_sec=0.2)
                found = {name for name, space in node.get_node_names_and_namespaces() if space == "/tried"}
            self.assertLessEqual(wanted, found)
        finally:
            node.destroy_node()
            rclpy.shutdown()


@launch_testing.post_shutdown_test()
class AfterItsEnd(unittest.TestCase):
    def test_all_nodes_end_in_order(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)
