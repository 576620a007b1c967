"""Real nodes over real DDS: in this process, each with an executor of its own, or as processes of their own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the helpers of these tests
