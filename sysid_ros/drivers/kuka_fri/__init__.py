"""KUKA LBR over the Fast Robot Interface (FRI): messages, client, and an emulator of the controller."""
