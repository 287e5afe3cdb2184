"""The published schemas are those of the dataclasses, and everything that a command prints as JSON keeps to them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from gobrrr import schema
from gobrrr.cli import gobrrr
from gobrrr.json_schema import json_schema
from gobrrr.lab.result import Lab
from gobrrr.report.documents import DOCUMENTS, schemas
from reported import DATA, LAB, kept_lab

Draft202012Validator = pytest.importorskip("jsonschema").Draft202012Validator

PUBLISHED = Path(__file__).parents[1] / "docs" / "schemas"
BERT = str(DATA / "exams" / "bert_large.json.gz")
COMPILED = str(DATA / "exams" / "bert_large_compiled.json.gz")
EXAMPLE = str(Path(__file__).parents[1] / "examples" / "transformer.py")


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((PUBLISHED / f"{name}.schema.json").read_text()))


def printed(*args: str) -> Any:
    ran = CliRunner().invoke(gobrrr, args, catch_exceptions=False)
    return json.loads(ran.stdout)


def test_the_published_schemas_are_up_to_date():
    """`python -m gobrrr.report.documents docs/schemas` writes them."""
    assert schemas() == {path.name: path.read_text() for path in PUBLISHED.glob("*.json")}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_published_schema_is_one(kind):
    Draft202012Validator.check_schema(json_schema(kind))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("diagnosis", ("show", BERT, "--json")),
        ("diagnosis", ("show", COMPILED, "--json")),
        ("diagnosis", ("show", str(DATA / "mlp.json.gz"), "--json")),
        ("comparison", ("compare", BERT, COMPILED, "--json")),
        ("predict", ("predict", "--exam", BERT, "--on", "h100,b200", "--json")),
        ("findings", ("explain", "--json")),
        ("count", ("count", f"{EXAMPLE}:training", "--json")),
    ],
)
def test_what_a_command_prints_keeps_to_its_schema(name, args):
    validator(name).validate(printed(*args))


def test_what_machine_prints_keeps_to_its_schema(monkeypatch):
    """With made-up ceilings, of which most are unknown."""
    import gobrrr.machine
    from test_floors import CPU

    monkeypatch.setattr(gobrrr.machine, "measured", lambda *args, **options: CPU)
    validator("machine").validate(printed("machine", "--json"))


def test_kept_files_keep_to_their_schemas():
    validator("lab").validate(json.loads(LAB.read_text()))
    validator("lab").validate(schema.document_data(kept_lab()))
    for path in sorted((DATA / "exams").glob("*.json.gz")):
        from gobrrr.exam import Exam

        validator("exam").validate(schema.document_data(schema.read(Exam, path)))


def test_a_document_that_lacks_something_or_has_it_otherwise_is_refused():
    whole = schema.document_data(kept_lab())
    assert not validator("lab").is_valid({name: value for name, value in whole.items() if name != "device"})
    assert not validator("lab").is_valid({**whole, "threads": "four"})
    assert not validator("lab").is_valid({**whole, "schema_version": Lab.VERSION + 1})
    assert validator("lab").is_valid({**whole, "more": "may come"})


@dataclass(frozen=True)
class Tree:
    name: str | None
    pair: tuple[int, float]
    children: tuple["Tree", ...] = ()


@dataclass(frozen=True)
class Garden:
    SCHEMA: ClassVar[str] = "garden"
    VERSION: ClassVar[int] = 3

    tree: Tree


def test_a_part_may_hold_itself_and_pairs_have_two():
    made = Draft202012Validator(json_schema(Garden))
    leaf: dict[str, Any] = {"name": None, "pair": [1, 2.5], "children": []}
    assert made.is_valid({"schema_version": 3, "tree": {**leaf, "children": [leaf]}})
    assert not made.is_valid({"schema_version": 3, "tree": {**leaf, "children": [{**leaf, "pair": [1]}]}})
