"""Pick an object of unknown weight, identify it on the way, and place it by its weight: a node beside the suite.

    sysid identify --nodes-only --model kinova_gen3 --payload none --domain-id 7    # or ros2 launch ...
    ROS_DOMAIN_ID=7 python examples/pick_and_place.py --model kinova_gen3

Every motion is certified: with the prior of the payload before the object is known, with its bounds afterwards. Where
MoveIt's messages are installed, the object with its weight is attached to the robot in MoveIt's planning scene.
"""

import argparse
import sys

import numpy as np
from rclpy.node import Node

from sysid_msgs.action import Identify, MoveTo
from sysid_msgs.srv import ApplyEstimate, SetPayload
from sysid_ros.core.model.inertia import transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.reports.payload_files import Load, planning_scene
from sysid_ros.ros.conversions.estimate import inertia_from_message
from sysid_ros.ros.goal_client import GoalClient, GoalLost, client_main
from sysid_ros.ros.services import fill_message

PICK = (0.3, 0.2, 0.0, 0.2, 0.0, 0.1, 0.0)
LIGHT = (-0.3, 0.2, 0.0, 0.2, 0.0, 0.1, 0.0)
HEAVY = (-0.5, 0.1, 0.0, 0.3, 0.0, 0.1, 0.0)
"""Where things are picked and placed, as differences from the robot's home [rad]."""
ROUGHLY = 0.2
"""How near the arm has to come while its hand may hold anything [rad]: its errors are bounded for all of that."""
SERVICE_TIMEOUT = 10.0


class Gripper:
    """The gripper of a simulated arm: closing it puts an object into it. Put the action of yours in its place."""

    def __init__(self, node, call, robot, held):
        self._client, self._call = node.create_client(SetPayload, "arm_driver/set_payload"), call
        self._object = load_payload(robot, held)

    def close(self):
        request = SetPayload.Request(operation=SetPayload.Request.ATTACH, payload=self._object, announce=True)
        self._call(self._client, request, "the gripper")

    def open(self):
        self._call(self._client, SetPayload.Request(operation=SetPayload.Request.DETACH, announce=True), "the gripper")


class PickAndPlace:
    """Picks one object, identifies it and places it.

    Args:
        options: The command line.
        stop: Whether somebody asks for the end, which cancels what runs.
    """

    def __init__(self, options, stop):
        self._options, self._robot = options, load_robot(options.model)
        self._mover, self._identifier = Node("pick_and_place_mover"), Node("pick_and_place")
        self._move = GoalClient(self._mover, MoveTo, "identification/move_to", stop)
        self._identify = GoalClient(self._identifier, Identify, "identification/identify", stop)
        self._set_model = self._mover.create_client(ApplyEstimate, "arm_driver/set_model")
        self._gripper = Gripper(self._mover, self._call, self._robot, options.held)
        try:
            from moveit_msgs.msg import PlanningScene

            self._moveit = self._identifier.create_publisher(PlanningScene, "planning_scene", 1)
        except ModuleNotFoundError:
            self._moveit = None

    def run(self):
        """Return the exit status."""
        self._go("at the object", PICK, ROUGHLY)
        self._gripper.close()
        found = self._weigh()
        lower, upper = found.estimate.lower[0], found.estimate.upper[0]
        print(f"It weighs {lower:.2f} to {upper:.2f} kg.")
        self._tell_moveit(found)
        # What may be heavy is: the upper bound is certain, an estimate is not.
        where, place = ("heavy", HEAVY) if upper > self._options.light else ("light", LIGHT)
        self._go(f"at the {where} things", place)
        self._gripper.open()
        self._call(self._set_model, ApplyEstimate.Request(), "the prior of the payload")  # of what comes next
        self._go("home", np.zeros(len(PICK)), ROUGHLY)
        return 0

    def _go(self, where, offset, tolerance=0.0):
        position = list(self._robot.home + offset)
        names = self._robot.joint_names
        result = self._ask(self._move, MoveTo.Goal(joint_names=names, goal_position=position, tolerance=tolerance))
        print(f"The arm is {where}, after {result.motion_time:.1f} s.", flush=True)

    def _weigh(self):
        goal = Identify.Goal(
            max_motion_time=self._options.seconds, target_mass_width=0.1, gripper=self._options.gripper
        )
        return self._ask(self._identify, goal)

    def _tell_moveit(self, found):
        if self._moveit is None:
            print("MoveIt's messages (moveit_msgs) are not installed: nothing is attached in its planning scene.")
            return
        rotation, origin = tool_transform(self._robot)  # of the tool in the frame of the estimate
        body = transform_parameters(inertia_from_message(found.payload), rotation.T, -rotation.T @ origin)
        scene = planning_scene(Load.from_parameters(body, self._robot.tool_frame))
        self._moveit.publish(fill_message(self._moveit.msg_type(), scene))

    def _call(self, client, request, what):
        """Asks a service; whoever refuses ends the task with its reason."""
        if not self._move.spin_until(client.service_is_ready, SERVICE_TIMEOUT):
            raise GoalLost(f"{what}: nobody offers {client.srv_name}")
        answer = client.call_async(request)
        if not self._move.spin_until(answer.done, SERVICE_TIMEOUT):
            raise GoalLost(f"{what}: no answer of {client.srv_name}")
        if not answer.result().success:
            raise GoalLost(f"{what}: {answer.result().message}")

    @staticmethod
    def _ask(client, goal):
        result = client.run(goal, lambda _: None, lambda: print("The arm brakes."))
        if result.error_code != Identify.Result.NONE:
            raise GoalLost(f"error {result.error_code}: {result.error_text}")
        return result

    def close(self):
        for part in (self._move, self._identify):
            part.close()


def main(argv=None):
    parser = argparse.ArgumentParser(prog="pick_and_place", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="kinova_gen3", help="robot of the suite (default: %(default)s)")
    parser.add_argument("--held", default="dumbbell_4lb", help="what a simulated gripper grips: a name or a mass [kg]")
    parser.add_argument("--light", type=float, default=1.0, help="mass up to which a thing is light [kg]")
    parser.add_argument(
        "--gripper", default="", help="its state around an object, where the settings of the robot name it"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="how long the arm may move to identify it [s]")

    def run(options, stop):
        task = PickAndPlace(options, stop)
        try:
            return task.run()
        except GoalLost as lost:
            print(lost, file=sys.stderr)
            return 1
        finally:
            task.close()

    return client_main(lambda: parser, run, argv)


if __name__ == "__main__":
    sys.exit(main())
