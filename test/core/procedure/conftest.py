import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the doubles


@pytest.fixture(scope="session")
def robot():
    from sysid_ros.core.model.loader import load_robot

    return load_robot("kinova_gen3_2f85")
