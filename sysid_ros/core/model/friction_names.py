"""Names and units of the friction parameters of a joint, in their order."""

FRICTION_NAMES = ("F_c", "F_v", "I_a", "beta")
FRICTION_UNITS = ("Nm", "Nm s/rad", "kg m^2", "Nm")
