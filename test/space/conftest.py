import pytest

from sysid_ros.space.core.robot import load_free_flyer


@pytest.fixture(scope="session")
def robot():
    return load_free_flyer("servicer")
