"""Identify a payload from arrays: times, positions, velocities and torques of your own logger."""

from simulate import dumbbell, simulate

import sysid_ros as sr

robot = sr.load_robot("kinova_gen3_2f85")
log = simulate(robot, dumbbell(robot=robot))

result = sr.identify(log, robot)
estimate = result.estimate
print(f"mass {estimate.values[0]:.3f} kg, certainly between {estimate.lower[0]:.3f} and {estimate.upper[0]:.3f} kg")
print(estimate.guarantee)
