"""Real nodes over real DDS: in this process, each with an executor of its own, or as processes of their own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers of these tests


@pytest.fixture(scope="session")
def robot():
    from sysid_ros.core.model.loader import load_robot

    return load_robot("kinova_gen3_2f85")
