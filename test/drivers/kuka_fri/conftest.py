import pytest

from sysid_ros.drivers.network import free_port


@pytest.fixture
def port():
    return free_port()
