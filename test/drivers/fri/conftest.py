import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the stand-ins


@pytest.fixture
def port():
    from fri_bench import free_port

    return free_port()
