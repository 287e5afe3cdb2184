import gzip
import json
import math
import os
import resource
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import schema
from gobrrr.errors import BadInput, Missing


class Season(StrEnum):
    SPRING = "spring"
    FALL = "fall"


class Rank(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    count: int
    size_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    SCHEMA: ClassVar[str] = "tree"
    VERSION: ClassVar[int] = 2
    DERIVED: ClassVar[tuple[str, ...]] = ("leaf_count",)

    leaves: tuple[Leaf, ...]
    place: tuple[float, str]
    by_name: Mapping[str, Leaf]
    season: Season
    rank: Rank | None
    kind: Literal["oak", "elm"]
    is_green: bool
    fallen: Leaf | None = None
    rings: tuple[tuple[int, ...], ...] = ()
    note: str | int = ""

    @property
    def leaf_count(self) -> int:
        return sum(leaf.count for leaf in self.leaves)


# A path that is not UTF-8 reaches Python as these lone surrogates, and a source line may hold such a path.
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff"))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.builds(Leaf, TEXT, st.integers(), st.none() | FINITE)
TREES = st.builds(
    Tree,
    leaves=st.lists(LEAVES, max_size=3).map(tuple),
    place=st.tuples(FINITE, TEXT),
    by_name=st.dictionaries(TEXT, LEAVES, max_size=3),
    season=st.sampled_from(Season),
    rank=st.none() | st.sampled_from(Rank),
    kind=st.sampled_from(["oak", "elm"]),
    is_green=st.booleans(),
    fallen=st.none() | LEAVES,
    rings=st.lists(st.lists(st.integers(), max_size=3).map(tuple), max_size=3).map(tuple),
    note=TEXT | st.integers(),
)
OAK = Tree(
    leaves=(Leaf("first", 1, 0.5), Leaf("second", 2)),
    place=(1.5, "hill"),
    by_name={"first": Leaf("first", 1)},
    season=Season.FALL,
    rank=Rank.HIGH,
    kind="oak",
    is_green=False,
)
ELM = replace(OAK, kind="elm")


def oak_data(**changes):
    return json.loads(schema.dumps(OAK)) | changes


def refusal(path: Path) -> str:
    """The one sentence in which a file is refused."""
    with pytest.raises(BadInput) as caught:
        schema.read(Tree, path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 200
    return message


@contextmanager
def files_no_longer_than(limit_bytes: int):
    """As on a full disk: what exceeds the limit fails halfway through."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(TREES)
def test_a_document_comes_back_as_it_was(tree):
    assert schema.from_document(Tree, json.loads(schema.dumps(tree))) == tree


@pytest.mark.parametrize("name", ["tree.json", "tree.json.gz", "new/folder/tree.json"])
@pytest.mark.parametrize("note", ["", "µs", "\udcff.py"])
def test_a_document_survives_the_disk(tmp_path, name, note):
    tree = replace(OAK, note=note)
    schema.write(tree, tmp_path / name)
    assert schema.read(Tree, tmp_path / name) == tree


def test_gz_is_compressed_and_one_document_is_always_the_same_bytes(tmp_path):
    paths = [tmp_path / "one.gz", tmp_path / "two.gz"]
    for path in paths:
        schema.write(OAK, path)
    assert json.loads(gzip.decompress(paths[0].read_bytes())) == oak_data()
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_is_read_has_the_annotated_types():
    tree = schema.from_document(Tree, oak_data(place=[1, "hill"], rings=[[1, 2], []]))
    assert isinstance(tree.place[0], float)
    assert tree.rings == ((1, 2), ())
    assert isinstance(tree.leaves[0], Leaf)
    assert tree.season is Season.FALL
    assert tree.rank is Rank.HIGH


def test_the_version_stands_first():
    assert schema.dumps(OAK).startswith('{"schema_version": 2, ')


def test_what_is_derived_is_written_and_on_reading_derived_again():
    assert oak_data()["leaf_count"] == 3
    assert schema.from_document(Tree, oak_data(leaf_count=99)).leaf_count == 3


def test_an_unknown_key_is_passed_over_at_every_depth():
    data = oak_data(from_the_future=[1])
    data["leaves"][0]["veins"] = {"count": 7}
    assert schema.from_document(Tree, data) == OAK


@pytest.mark.parametrize("key", ["fallen", "rings", "note"])
def test_a_missing_key_takes_its_default(key):
    data = oak_data()
    del data[key]
    assert schema.from_document(Tree, data) == OAK


def test_a_missing_key_without_a_default_is_named_with_its_place():
    data = oak_data()
    del data["leaves"][1]["count"]
    with pytest.raises(BadInput, match=r"^tree\.leaves\[1\] lacks 'count'$"):
        schema.from_document(Tree, data)


def test_an_older_version_is_read():
    assert schema.from_document(Tree, oak_data(schema_version=1)) == OAK


def test_a_newer_file_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(oak_data(schema_version=3)))
    assert refusal(path) == f"{path}: tree schema 3 is newer than 2, our newest: upgrade gobrrr"


@pytest.mark.parametrize(
    "data", [None, [], "tree", 2, {}, oak_data(schema_version=None), oak_data(schema_version=True)]
)
def test_data_without_a_version_is_no_document(data):
    with pytest.raises(BadInput, match=r"^not a tree document: it has no schema_version$"):
        schema.from_document(Tree, data)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"leaves": {}}, "tree.leaves cannot be an object"),
        ({"leaves": [3]}, "tree.leaves[0] cannot be 3"),
        ({"leaves": [{"name": 3, "count": 1}]}, "tree.leaves[0].name cannot be 3"),
        ({"leaves": [{"name": "x", "count": 1.5}]}, "tree.leaves[0].count cannot be 1.5"),
        ({"leaves": [{"name": "x", "count": True}]}, "tree.leaves[0].count cannot be true"),
        ({"leaves": [{"name": "x", "count": 1, "size_s": "1"}]}, 'tree.leaves[0].size_s cannot be "1"'),
        ({"place": [1]}, "tree.place cannot be a list"),
        ({"place": [None, "hill"]}, "tree.place[0] cannot be null"),
        ({"place": [10**400, "hill"]}, "tree.place[0] cannot be 1000"),
        ({"place": [math.nan, "hill"]}, "tree.place[0] cannot be NaN"),
        ({"by_name": []}, "tree.by_name cannot be a list"),
        ({"by_name": {"a\nb": 1}}, r"tree.by_name['a\nb'] cannot be 1"),
        ({"season": "winter"}, 'tree.season cannot be "winter"'),
        ({"season": ["fall"]}, "tree.season cannot be a list"),
        ({"rank": 3}, "tree.rank cannot be 3"),
        ({"kind": "ash"}, 'tree.kind cannot be "ash"'),
        ({"is_green": 1}, "tree.is_green cannot be 1"),
        ({"fallen": "yes"}, 'tree.fallen cannot be "yes"'),
        ({"rings": [1]}, "tree.rings[0] cannot be 1"),
        ({"note": None}, "tree.note cannot be null"),
        ({"place": ["x" * 10**6, "hill"]}, 'tree.place[0] cannot be "xxx'),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_place(tmp_path, changes, place):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(oak_data(**changes)))
    assert refusal(path).startswith(f"{path}: {place}")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_written_as_unknown(value):
    odd = replace(OAK, leaves=(Leaf("odd", 1, value),), by_name={"odd": Leaf("odd", 1, value)})
    text = schema.dumps(odd)
    json.loads(text, parse_constant=pytest.fail)
    assert schema.from_document(Tree, json.loads(text)).leaves[0].size_s is None


@pytest.mark.parametrize("old", [OAK, None], ids=["old file", "no old file"])
@pytest.mark.parametrize("name", ["tree.json", "tree.json.gz"])
def test_a_write_that_fails_halfway_leaves_the_folder_as_it_was(tmp_path, old, name):
    path = tmp_path / name
    if old is not None:
        schema.write(old, path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with files_no_longer_than(64), pytest.raises(Missing, match=r"^.* cannot be written: File too large$"):
        schema.write(ELM, path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("stopped_by", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (PermissionError, Missing)])
def test_a_write_stopped_before_the_rename_leaves_the_old_file_alone(tmp_path, monkeypatch, stopped_by, raised):
    path = tmp_path / "tree.json"
    schema.write(OAK, path)

    def stop(*_):
        assert len(list(tmp_path.iterdir())) == 2
        raise stopped_by

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(raised):
        schema.write(ELM, path)
    assert list(tmp_path.iterdir()) == [path]
    assert schema.read(Tree, path) == OAK


def test_a_link_stays_one_and_a_pipe_is_written_into(tmp_path):
    link, pipe, real = tmp_path / "link.json", tmp_path / "pipe.json", tmp_path / "real.json"
    schema.write(OAK, real)
    link.symlink_to(real)
    schema.write(ELM, link)
    assert link.is_symlink()
    assert schema.read(Tree, real) == ELM
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    schema.write(OAK, pipe)
    assert schema.from_document(Tree, json.loads(os.read(reading, 1 << 16))) == OAK
    os.close(reading)
    assert pipe.is_fifo()


def test_a_document_replaces_the_one_before(tmp_path):
    path = tmp_path / "tree.json"
    for tree in (OAK, ELM):
        schema.write(tree, path)
    assert schema.read(Tree, path) == ELM
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["tree.json", "folder/tree.json"])
def test_a_folder_that_cannot_hold_the_file_is_one_sentence(tmp_path, name):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / name
    with pytest.raises(Missing) as caught:
        schema.write(OAK, path)
    assert str(caught.value).startswith(f"{path} cannot be written: ")
    assert "\n" not in str(caught.value)


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    path = tmp_path / "tree.json"
    with pytest.raises(Missing) as caught:
        schema.write(OAK, path)
    assert str(caught.value) == f"{path} cannot be written: Permission denied"


def test_others_may_read_what_the_umask_lets_them_read(tmp_path):
    path = tmp_path / "tree.json"
    previous = os.umask(0o022)
    try:
        schema.write(OAK, path)
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["tree.json", "tree.json.gz"])
def test_every_truncation_is_refused(tmp_path, name):
    path = tmp_path / name
    schema.write(OAK, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)


@pytest.mark.parametrize("name", ["tree.json", "tree.json.gz"])
@given(data=st.data())
def test_a_corrupt_file_is_refused_or_read_and_nothing_else(tmp_path_factory, name, data):
    path = tmp_path_factory.getbasetemp() / f"corrupt-{name}"
    schema.write(OAK, path)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        assert isinstance(schema.read(Tree, path), Tree)
    except BadInput:
        refusal(path)


@pytest.mark.parametrize("depth", [100, 900, 960, 980, 1000, 100_000])
@pytest.mark.parametrize("key", ["leaves", "season", "kind", "note", "from_the_future"])
def test_a_deeply_nested_file_is_refused_or_its_depth_passed_over(tmp_path, key, depth):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(oak_data(**{key: "@"})).replace('"@"', "[" * depth + "]" * depth))
    if key == "from_the_future":
        with suppress(BadInput):
            assert schema.read(Tree, path) == OAK
    else:
        refusal(path)


@pytest.mark.parametrize("name", ["tree.json", "tree.json.gz"])
def test_a_file_that_inflates_beyond_the_limit_is_refused(tmp_path, monkeypatch, name):
    path = tmp_path / name
    schema.write(replace(OAK, note="x" * 10_000), path)
    monkeypatch.setattr(schema, "MAX_DOCUMENT_BYTES", 5000)
    assert "not a tree file" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tree.json", b"\xff\xfe\x00\x01"),
        ("tree.json", gzip.compress(b"{}", mtime=0)),
        ("tree.json", b'{"schema_version": ' + b"9" * 5000 + b"}"),
        ("tree.json.gz", b"{}"),
        ("tree.json.gz", b""),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "is not a readable tree file" in refusal(tmp_path / name)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    assert refusal(tmp_path / "absent.json").endswith("absent.json does not exist")
    assert "is not a readable tree file" in refusal(tmp_path)


def test_a_null_in_a_mapping_is_a_value_that_nobody_knows():
    data = {**schema.document_data(OAK), "by_name": {"first": schema.to_data(Leaf("first", 1)), "second": None}}
    assert schema.from_document(type(OAK), data).by_name == {"first": Leaf("first", 1)}
