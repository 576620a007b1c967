"""Between messages and the types of the core; nothing else reads or fills the fields of these messages.

Joints are matched by name, never by order. Every received message is checked: one that does not fit raises an
error with its type, the field, the value found and the value needed.
"""
