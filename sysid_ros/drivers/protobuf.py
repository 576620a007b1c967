"""Protobuf messages from a table of their fields, without generated code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto


def build_classes(package: str, messages: Mapping[str, Sequence[str]], syntax: str) -> dict[str, Any]:
    """Build the classes of messages, by name.

    Args:
        package: Name of the protobuf package.
        messages: Fields of every message, each as ``tag [label] type name``: optional without a label; ``packed`` is a
            repeated field in one piece.
        syntax: ``proto2`` or ``proto3``.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for tag, *label, kind, field_name in map(str.split, fields):
            field = message.field.add(name=field_name, number=int(tag))
            if label == ["packed"]:
                field.options.packed, label = True, ["repeated"]
            field.label = getattr(_FIELD, f"LABEL_{(label or ['optional'])[0].upper()}")
            if kind in messages:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
    factory = message_factory.MessageFactory()  # protobuf before 4.22
    return {name: factory.GetPrototype(descriptor) for name, descriptor in descriptors.items()}
