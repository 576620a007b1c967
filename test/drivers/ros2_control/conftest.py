"""Robots of these tests."""

import sys
from pathlib import Path

import pytest

from sysid_ros.core.model.loader import load_robot

sys.path.insert(0, str(Path(__file__).parent))  # the helpers of these tests


@pytest.fixture(scope="session")
def robot():
    return load_robot("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def lbr():
    return load_robot("kuka_lbr_med7")
