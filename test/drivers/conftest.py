import sys
from pathlib import Path

for folder in (".", "kinova_kortex", "kuka_fri", "ros2_control"):  # the doubles, also for processes the tests start
    sys.path.insert(0, str(Path(__file__).parent / folder))
