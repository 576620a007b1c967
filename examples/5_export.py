"""Identify with a tare, write every file of the result, and read what a controller would be given."""

import tempfile
from pathlib import Path

from simulate import dumbbell, simulate

import sysid_ros as sr

robot = sr.load_robot("kinova_gen3_2f85")
empty = simulate(robot, 0.0 * dumbbell(robot=robot), seconds=5.0, seed=1)
result = sr.identify(simulate(robot, dumbbell(robot=robot), seconds=5.0), robot, tare=empty)
written = sr.write_results(result, tempfile.mkdtemp())
print("files:", ", ".join(written.files))
for sentence in written.left_out:
    print("left out:", sentence)
print((Path(written.directory) / "payload_kinova.yaml").read_text())
