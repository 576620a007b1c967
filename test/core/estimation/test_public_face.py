"""The names the package offers, and that samples do not import the mathematics."""

import subprocess
import sys

import pytest

from sysid_ros.core import estimation


def test_every_public_name_is_there_and_no_other():
    assert all(getattr(estimation, name).__name__ == name for name in estimation.__all__)
    assert sorted(name for names in estimation._HOMES.values() for name in names) == estimation.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Estimator'"):
        _ = estimation.Estimator


def test_samples_need_none_of_the_mathematics():
    code = "import sys; from sysid_ros.core.estimation import SampleBlock; print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
