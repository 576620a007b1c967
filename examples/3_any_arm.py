"""Any arm: only a URDF. What it does not say is unknown within wide boxes; narrower ones give narrower bounds."""

from simulate import dumbbell, simulate

import sysid_ros as sr
from sysid_ros.core.model.loader import load_robot_from_urdf
from sysid_ros.resources import resource

text = resource("urdf/xarm7.urdf").read_text()
bare = load_robot_from_urdf(text)
for sentence in bare.assumptions:
    print("assumed:", sentence)

known = load_robot_from_urdf(text, settings={"inertial_uncertainty": {"relative": 0.01}})
for name, robot in (("as the URDF alone says", bare), ("with inertias known to 1 %", known)):
    result = sr.identify(simulate(robot, dumbbell(1.0, robot), seconds=2.0), robot)
    lower, upper = result.estimate.lower[0], result.estimate.upper[0]
    print(f"{name}: mass between {lower:.2f} and {upper:.2f} kg")
