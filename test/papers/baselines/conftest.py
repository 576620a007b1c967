import pytest

from sysid_ros.core.model.loader import load_robot


@pytest.fixture(scope="session")
def gen3():
    return load_robot("kinova_gen3_2f85")
