"""Every parameter of the Kinova driver reaches its client."""

from dataclasses import asdict

from sysid_ros.adapters.arm_driver.kortex import KortexParameters
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings


def test_every_parameter_of_the_connection_reaches_the_client():
    parameters = KortexParameters(
        username="u", password="p", port=1, port_realtime=2, session_inactivity_timeout_ms=3000,
        connection_inactivity_timeout_ms=400, velocity_source="positions", stamp_source="frames",
        connect_timeout=5.5, session_timeout=0.6, cycle_timeout=0.003,
    )  # fmt: skip
    settings = parameters.kortex_settings(0.05, "10.0.0.1")
    assert settings.reply_wait == 0.003
    found = {name: getattr(value, "value", value) for name, value in asdict(settings).items()}
    expected = {
        "robot_ip": "10.0.0.1", "username": "u", "password": "p", "port": 1, "port_realtime": 2,
        "session_inactivity_timeout": 3.0, "connection_inactivity_timeout": 0.4,
        "velocity": "positions", "stamps": "frames", "connect_timeout": 5.5, "session_timeout": 0.6,
        "late_limit": 0.05, "wait_time": 0.003,
    }  # fmt: skip
    default = {name: getattr(value, "value", value) for name, value in asdict(KortexSettings()).items()}
    assert {name: found[name] for name in expected} == expected
    assert all(expected[name] != default[name] for name in expected)
    assert KortexParameters().kortex_settings(0.02, "10.0.0.1").reply_wait == 0.00075
