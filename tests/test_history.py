"""The last ten Exams: what is kept, what is dropped, and what they are called."""

from dataclasses import replace

import pytest

from gobrrr import history, schema
from gobrrr.errors import BadInput
from gobrrr.exam import Exam
from test_exam import exam


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gobrrr" / "exams"


def kept(name: str) -> bool:
    said = []
    assert history.keep(replace(exam(), target=name), said.append) is (said == [])
    return not said


def target(name: str) -> str:
    return schema.read(Exam, history.path_of(name)).target


def test_the_last_comes_first_and_each_before_it_has_a_number(folder):
    for name in ("first", "second", "third"):
        assert kept(name)
    assert [target(name) for name in ("last", "last~0", "last~1", "last~2")] == ["third", "third", "second", "first"]


def test_ten_are_kept_and_the_oldest_goes(folder):
    for number in range(13):
        kept(str(number))
    assert len(list(folder.iterdir())) == history.MOST == 10
    assert (target("last"), target("last~9")) == ("12", "3")


def test_what_is_not_ours_in_the_folder_stays(folder):
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    for number in range(12):
        kept(str(number))
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_name_that_is_no_last_is_a_path(folder):
    for name in ("exam.json.gz", "./last", "last~", "lasting", "last~-1"):
        assert str(history.path_of(name)) == str(type(folder)(name))


def test_without_any_exam_it_says_how_to_make_one(folder):
    with pytest.raises(BadInput, match=r"no Exam has been kept yet: gobrrr examine FILE\.py:NAME makes one"):
        history.path_of("last")


def test_further_back_than_there_are_names_the_oldest(folder):
    kept("only")
    with pytest.raises(BadInput, match="there is no last~1: 1 are kept, the oldest is last~0"):
        history.path_of("last~1")


def test_a_folder_that_cannot_be_written_is_said_and_nothing_fails(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = []
    assert not history.keep(exam(), said.append)
    assert len(said) == 1
    assert said[0].startswith("examined, but not kept: ")


def test_without_xdg_it_is_the_home_folders_state(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert history.folder() == tmp_path / ".local" / "state" / "gobrrr" / "exams"
