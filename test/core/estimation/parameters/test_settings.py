import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import _RANGES, ERROR_TERMS, EstimatorSettings


def test_defaults_are_in_range_and_documented():
    settings = EstimatorSettings()
    assert settings.left_out_terms == ()
    for name in settings.__dataclass_fields__:
        assert f"        {name}: " in EstimatorSettings.__doc__


@pytest.mark.parametrize("name", _RANGES)
def test_numbers_out_of_range_are_refused(name):
    lower, upper, unit = _RANGES[name]
    for value in (lower - 1e-3, upper * 2 + 1, float("nan")):
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
    with pytest.raises(ParameterOutOfRange, match="allowed: (one|any) of"):
        EstimatorSettings(**change)


def test_left_out_terms_are_listed_in_order():
    kept = tuple(name for name in ERROR_TERMS if name not in ("velocity", "jitter"))
    assert EstimatorSettings(error_terms=kept).left_out_terms == ("velocity", "jitter")
