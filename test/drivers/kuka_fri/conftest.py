import sys
from pathlib import Path

import pytest

from sysid_ros.drivers.network import free_port

sys.path.insert(0, str(Path(__file__).parent))  # the stand-ins


@pytest.fixture
def port():
    return free_port()
