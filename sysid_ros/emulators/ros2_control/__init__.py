"""An arm under ros2_control, emulated: its broadcaster, its effort controller, and a simulated arm behind them."""
