"""JSON Schemas of our documents, made from the dataclasses that they are written from: one source, no drift.

They say what is written: every field is there, `null` is unknown, and more may come. A value in a mapping may be `null`
too: a name that readers may ask for, of which nobody knows the value.
"""

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gobrrr.schema import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {float: "number", int: "integer", str: "string", bool: "boolean", types.NoneType: "null"}


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Of a document: its parts stand in `$defs`, since a tree of modules is made of itself."""
    parts: dict[str, Any] = {}
    _described(kind, parts)
    document = parts.pop(kind.__name__)
    derived: dict[str, Any] = {name: {} for name in getattr(kind, "DERIVED", ())}
    version = {"schema_version": {"const": kind.VERSION}}
    return {
        "$schema": DIALECT,
        "title": kind.SCHEMA,
        **document,
        "properties": {**version, **document["properties"], **derived},
        "required": [*version, *document["required"], *derived],
        "$defs": dict(sorted(parts.items())),
    }


def _described(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; dataclasses are put among the parts and referred to."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_described(option, parts) for option in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if is_dataclass(kind):
        return _referred(kind, parts)
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _or_null(_described(arguments[1], parts))}
    if origin in (tuple, list, Sequence):
        return _items(arguments, parts)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _items(tuple(get_type_hints(kind).values()), parts)
    assert isinstance(kind, type), f"{kind} has no schema"
    assert issubclass(kind, Enum), f"{kind} has no schema"
    return {"enum": [member.value for member in kind]}


def _referred(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in parts:
        parts[name] = {}  # a part may hold itself
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind)]
        properties = {name: _described(hints[name], parts) for name in names}
        parts[name] = {"type": "object", "properties": properties, "required": names}
    return {"$ref": f"#/$defs/{name}"}


def _items(arguments: tuple[Any, ...], parts: dict[str, Any]) -> dict[str, Any]:
    """Of one type and any number, or each of its own type."""
    if len(arguments) == 1 or arguments[-1] is Ellipsis:
        return {"type": "array", "items": _described(arguments[0], parts)}
    items = [_described(argument, parts) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _or_null(described: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [described, {"type": "null"}]} if described else described
