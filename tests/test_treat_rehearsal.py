"""A plan is tried in a process of its own first, and what goes wrong there is said in a line."""

from textwrap import dedent

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.memory import has_room_for_two
from gobrrr.treat.rehearsal import is_a_file, rehearsals, rehearser
from gobrrr.treat.treatment import TREATMENTS, Dose

FUSED = Dose(TREATMENTS["fused-optimizer"], ("0",))

MADE = dedent("""
    import torch
    from gobrrr import Workload

    def made():
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        return Workload(model, torch.randn(2, 4), loss=lambda y: y.sum(), optimizer=optimizer)
    """)


def written(folder) -> str:
    (folder / "mine.py").write_text(MADE)
    return f"{folder / 'mine.py'}:made"


def test_what_works_is_not_spoken_of(tmp_path):
    with rehearsals(written(tmp_path)) as rehearse:
        assert rehearse((FUSED,)) is None
        assert rehearse((FUSED,)) is None


def test_who_began_before_being_asked_is_there_when_asked_for_nothing(tmp_path):
    with rehearsals(written(tmp_path), at_once=True) as rehearse:
        assert rehearse(()) is None
        assert rehearse((FUSED,)) is None


def test_who_is_not_there_in_time_is_ended_and_asked_again_when_needed(tmp_path):
    with rehearsals(written(tmp_path), at_once=True) as rehearse:
        assert rehearse((), 0.01).startswith("not done after")
        assert rehearse((FUSED,)) is None


def test_who_begins_and_fails_is_heard_when_asked_and_not_before(tmp_path):
    (tmp_path / "mine.py").write_text(MADE + "raise SystemExit('cannot go on')\n")
    with rehearsals(f"{tmp_path / 'mine.py'}:made", at_once=True) as rehearse:
        assert "cannot go on" in rehearse(())


@pytest.mark.parametrize(("device", "filled", "room"), [("cuda:0", 20, True), ("cuda:0", 21, False), ("cpu", 0, False)])
def test_nobody_begins_early_on_a_device_that_the_step_may_fill(monkeypatch, device, filled, room):
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: filled)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60, 100))
    assert has_room_for_two(device) is room


def test_what_fails_is_said_and_this_process_lives_on(tmp_path):
    with rehearsals(written(tmp_path)) as rehearse:
        said = rehearse((Dose(TREATMENTS["fused-optimizer"], ("7",)),))
        assert "optimizers given: 1, it is for 8" in said
        assert rehearse((FUSED,)) is None


def test_what_takes_too_long_is_ended(tmp_path):
    with rehearsals(written(tmp_path), 0.01) as rehearse:
        assert rehearse((FUSED,)).startswith("not done after")


def test_who_dies_of_it_leaves_a_last_word(tmp_path):
    (tmp_path / "mine.py").write_text(MADE + "raise SystemExit('cannot go on')\n")
    with rehearsals(f"{tmp_path / 'mine.py'}:made") as rehearse:
        assert "cannot go on" in rehearse((FUSED,))


def test_what_a_workload_prints_is_no_answer(tmp_path):
    (tmp_path / "mine.py").write_text(MADE + "print('hello')\n")
    with rehearsals(f"{tmp_path / 'mine.py'}:made") as rehearse:
        assert rehearse((FUSED,)) is None


def test_what_no_other_process_can_make_is_not_rehearsed():
    with rehearsals("made up") as rehearse:
        assert rehearse((FUSED,)) is None


def test_a_capture_without_a_device_fails_here_and_not_there(tmp_path):
    assert rehearser(written(tmp_path))([["whole-step-graph", ["step"]]]) is not None


def test_only_a_file_can_be_made_again(tmp_path):
    assert is_a_file(written(tmp_path))
    assert not is_a_file("made.py:up")
    assert not is_a_file("anything")
