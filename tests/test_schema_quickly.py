"""Documents go through msgspec where it can: what comes of it is what comes of the slow way."""

from pathlib import Path

import pytest
from hypothesis import given

from gobrrr import schema
from gobrrr.errors import BadInput
from gobrrr.exam import Exam
from test_schema import TREES, Tree

EXAMS = sorted((Path(__file__).parent / "data" / "exams").glob("*.json.gz"))


@pytest.fixture
def slowly(monkeypatch):
    """Turned on, there is no msgspec."""
    return lambda: monkeypatch.setattr(schema, "_msgspec", lambda: None)


@pytest.mark.parametrize("path", EXAMS, ids=lambda path: path.name.partition(".")[0])
def test_recorded_exams_are_read_the_same_either_way(path, slowly):
    quick = schema.read(Exam, path)
    slowly()
    assert schema.read(Exam, path) == quick


@given(tree=TREES)
def test_documents_are_written_the_same_either_way(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    (folder / "slow.json").write_text(schema.dumps(tree))
    schema.write(tree, folder / "quick.json")
    assert schema.read(Tree, folder / "quick.json") == schema.read(Tree, folder / "slow.json")


def test_exams_really_go_the_quick_way():
    pytest.importorskip("msgspec")
    exam = schema.read(Exam, EXAMS[0])
    raw = schema._quickly_written(exam)
    assert raw is not None
    assert schema._quickly_read(Exam, raw) == exam


@pytest.mark.parametrize("text", ["{}", '{"schema_version": 99}', "[1]", "null", "{", '{"schema_version": 1}'])
def test_what_is_no_exam_is_refused_in_the_same_words(text, slowly, tmp_path):
    path = tmp_path / "exam.json"
    path.write_text(text)
    with pytest.raises(BadInput) as quick:
        schema.read(Exam, path)
    slowly()
    with pytest.raises(BadInput) as slow:
        schema.read(Exam, path)
    assert str(quick.value) == str(slow.value)
