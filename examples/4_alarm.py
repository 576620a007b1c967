"""An alarm explains itself: here the efforts of a recording have the wrong sign."""

from simulate import dumbbell, simulate

import sysid_ros as sr

robot = sr.load_robot("kinova_gen3_2f85")
log = simulate(robot, dumbbell(robot=robot), seconds=2.0)
log["tau"] = -log["tau"]

result = sr.identify(log, robot)
print("usable:", result.is_usable)
for hypothesis in result.explanation.hypotheses:
    print(f"- {hypothesis.text}\n  check: {hypothesis.check}")
