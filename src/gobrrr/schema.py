"""Dataclasses to versioned JSON and back.

A document is a frozen dataclass with a `SCHEMA` name and a `VERSION`. Its JSON says which version wrote it;
a newer one is refused in a sentence, a key that we do not know is passed over, and a missing one takes its
default. `null` is unknown; NaN and infinity are never written.

Files go through msgspec where it can: ten times as fast, with the same result. What it refuses is read and written
as all else, so that there is one set of rules and one wording of errors.
"""

import gzip
import json
import math
import os
import types
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import uuid4

from gobrrr.errors import BadInput, Missing

MAX_DOCUMENT_BYTES = 1 << 30
"""A document larger than this once inflated is not one of ours, and reading on would exhaust memory."""

NEARLY = 0.8
"""Of the keys of a kind, from which on a document that lacks some is a damaged one of it, and no other."""


class Document(Protocol):
    SCHEMA: ClassVar[str]
    VERSION: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


D = TypeVar("D", bound=Document)


def to_data(value: Any) -> Any:
    """Plain JSON data: dataclasses become objects, tuples lists, a number that is not finite null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [to_data(item) for item in value]


def document_data(document: Document) -> dict[str, Any]:
    """The document's data with its version first; properties that it names in `DERIVED` go along.

    Readers of the JSON get them ready, and nobody stores what can be computed: reading passes them over.
    """
    derived = {name: to_data(getattr(document, name)) for name in getattr(document, "DERIVED", ())}
    return {"schema_version": document.VERSION, **to_data(document), **derived}


def dumps(document: Document) -> str:
    """In ASCII: a path that is not UTF-8 reaches us as lone surrogates, which only an escape can carry."""
    return json.dumps(document_data(document), allow_nan=False)


def write(document: Document, path: Path) -> None:
    """`.gz` compresses."""
    data = _quickly_written(document) or dumps(document).encode()
    write_whole(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, path)


def write_whole(data: bytes, path: Path) -> None:
    """The whole file or none of it: written beside and renamed."""
    try:
        if path.exists() and not path.is_file():  # a pipe, or a device: to be written into, not to be replaced
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))  # nor is a link
        beside = target.parent / f".{target.name}.{uuid4().hex[:8]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:  # unlike tempfile's, readable by those whom the umask lets
                file.write(data)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror or error}") from None


def read(kind: type[D], path: Path) -> D:
    """The document in that file, or a `BadInput` that says in what way it is none."""
    return read_one_of((kind,), path)


def read_one_of(kinds: Sequence[type[D]], path: Path) -> D:
    """The same of a document of several kinds: of that whose keys it has, or nearly so, or else of the first."""
    kind = kinds[0]
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise BadInput(f"{path} holds more than {MAX_DOCUMENT_BYTES >> 20} MiB: not a {kind.SCHEMA} file")
        if len(kinds) > 1:
            keys = _keys(raw)
            kind = next((one for one in kinds if len(_needed(one) & keys) >= NEARLY * len(_needed(one))), kind)
        quick = _quickly_read(kind, raw)
        data = json.loads(raw) if quick is None else None
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist") from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise BadInput(f"{path} is not a readable {kind.SCHEMA} file: {error}") from None
    try:
        return from_document(kind, data) if quick is None else quick
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _keys(raw: bytes) -> frozenset[str]:
    msgspec = _msgspec()
    if msgspec is not None:
        unread: Any = msgspec.Raw
        with suppress(msgspec.MsgspecError):  # of what is not quite JSON, the other has a word to say
            return frozenset(msgspec.json.decode(raw, type=dict[str, unread]))
    data = json.loads(raw)
    return frozenset(data if isinstance(data, dict) else ())


def _needed(kind: type[Document]) -> frozenset[str]:
    return frozenset(one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)


def _quickly_written(document: Document) -> bytes | None:
    """None for what only `dumps` can write: a lone surrogate, an integer of more than 64 bits."""
    msgspec = _msgspec()
    if msgspec is None:
        return None
    own = {field.name: getattr(document, field.name) for field in fields(document)}
    derived = {name: getattr(document, name) for name in getattr(document, "DERIVED", ())}
    try:
        written: bytes = msgspec.json.encode({"schema_version": document.VERSION, **own, **derived})
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return written


def _quickly_read(kind: type[D], raw: bytes) -> D | None:
    """None for what is not just such a document: the slow way says why, or reads it after all."""
    msgspec = _msgspec()
    if msgspec is None:
        return None
    try:
        version = msgspec.json.decode(raw, type=msgspec.defstruct("Versioned", [("schema_version", int)]))
        read: D = msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, BadInput):
        return None
    return read if version.schema_version <= kind.VERSION else None


@cache
def _msgspec() -> types.ModuleType | None:
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


def _is_trace(data: Any) -> bool:
    """As profilers write it: what people have at hand where one of our own files is asked for."""
    return isinstance(data, dict) and "traceEvents" in data


def from_document(kind: type[D], data: Any) -> D:
    """The typed document in plain JSON data."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        what = "it is a trace, for `gobrrr trace`" if _is_trace(data) else "it has no schema_version"
        raise BadInput(f"not {'an' if kind.SCHEMA[0] in 'aeiou' else 'a'} {kind.SCHEMA} document: {what}")
    if version > kind.VERSION:
        raise BadInput(f"{kind.SCHEMA} schema {version} is newer than {kind.VERSION}, our newest: upgrade gobrrr")
    result: D = _typed(kind, data, kind.SCHEMA)
    return result


def _typed(kind: Any, data: Any, where: str) -> Any:
    """`data` as a value of the annotated type, checked on the way; `where` is the path for the error."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _typed_union(get_args(kind), data, where)
    if origin is Literal:
        return _checked(data in get_args(kind), data, where)
    if is_dataclass(kind):
        return _typed_dataclass(kind, data, where)
    if origin in (tuple, list, Sequence):
        return _typed_sequence(get_args(kind), _checked(isinstance(data, list), data, where), where)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        _checked(isinstance(data, list) and len(data) == len(kind._fields), data, where)
        return kind(*_typed_sequence(tuple(_hints(kind)[name] for name in kind._fields), data, where))
    if origin in (dict, Mapping):
        _, value = get_args(kind)
        _checked(isinstance(data, dict), data, where)
        known = {key: item for key, item in data.items() if item is not None or _admits_none(value)}
        return {key: _typed(value, item, f"{where}[{key[:60]!r}]") for key, item in known.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(_checked(data in [member.value for member in kind], data, where))
    if kind is float:
        return _checked_float(data, where)
    if kind is int:
        return _checked(isinstance(data, int) and not isinstance(data, bool), data, where)
    return _checked(kind is Any or isinstance(data, kind), data, where)


def _admits_none(kind: Any) -> bool:
    """Elsewhere a null in a mapping is a value that nobody knows: inside, its key is absent."""
    return kind is Any or types.NoneType in get_args(kind)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """An Exam holds thousands of one kind, and resolving annotations takes longer than reading a value."""
    return get_type_hints(kind)


def _typed_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and types.NoneType in options:
        return None
    error = BadInput(f"{where} holds {type(data).__name__}")
    for option in options:
        if option is not types.NoneType:
            try:
                return _typed(option, data, where)
            except BadInput as mismatch:
                error = mismatch
    raise error


def _typed_dataclass(kind: Any, data: Any, where: str) -> Any:
    _checked(isinstance(data, dict), data, where)
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in data:
            values[field.name] = _typed(hints[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadInput(f"{where} lacks {field.name!r}")
    return kind(**values)


def _typed_sequence(item_types: tuple[Any, ...], data: list[Any], where: str) -> tuple[Any, ...]:
    if (len(item_types) == 2 and item_types[1] is Ellipsis) or len(item_types) == 1:
        item_types = (item_types[0],) * len(data)
    _checked(len(item_types) == len(data), data, where)
    pairs = zip(item_types, data, strict=True)
    return tuple(_typed(kind, item, f"{where}[{index}]") for index, (kind, item) in enumerate(pairs))


def _checked_float(data: Any, where: str) -> float:
    """A finite float: `json` reads NaN and 1e999 without a word, and an integer may exceed every float."""
    _checked(isinstance(data, int | float) and not isinstance(data, bool), data, where)
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    _checked(math.isfinite(value), data, where)
    return value


def _checked(holds: bool, data: Any, where: str) -> Any:  # noqa: FBT001 (a guard reads as a sentence)
    if not holds:
        shown = {"list": "a list", "dict": "an object"}.get(type(data).__name__) or json.dumps(data)[:60]
        raise BadInput(f"{where} cannot be {shown}")
    return data
