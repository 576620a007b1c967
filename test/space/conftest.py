import sys
from pathlib import Path

import pytest

from sysid_ros.space.core.robot import load_free_flyer

sys.path.insert(0, str(Path(__file__).parents[1] / "nodes"))  # the bench of nodes


@pytest.fixture(scope="session")
def robot():
    return load_free_flyer("servicer")
