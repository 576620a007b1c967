import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import settings_of
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings

NUMBERS = {name: info for name, info in settings_of(EstimatorSettings).items() if info.lower is not None}


def test_by_default_all_terms_count():
    assert EstimatorSettings().left_out_terms == ()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range_are_refused(name):
    for value in (NUMBERS[name].lower - 1e-3, NUMBERS[name].upper * 2 + 1, float("nan")):
        with pytest.raises(ParameterOutOfRange, match=name):
            EstimatorSettings(**{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"target": "gripper"},
        {"method": "guess"},
        {"quadrature": "simpson"},
        {"error_terms": ("torque_relative", "luck")},
    ],
)
def test_unknown_choices_are_refused_with_the_valid_ones(change):
    with pytest.raises(ParameterOutOfRange, match="expected one of"):
        EstimatorSettings(**change)


def test_left_out_terms_are_listed_in_order():
    kept = tuple(name for name in ERROR_TERMS if name not in ("velocity", "jitter"))
    assert EstimatorSettings(error_terms=kept).left_out_terms == ("velocity", "jitter")
