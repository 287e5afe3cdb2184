"""A plan is tried in a process of its own first, and what goes wrong there is said in a line."""

from textwrap import dedent

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.rehearsal import is_a_file, main, rehearsing
from gobrrr.treat.treatment import TREATMENTS, Dose

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
    assert rehearsing(written(tmp_path))((Dose(TREATMENTS["fused-optimizer"], ("0",)),)) is None


def test_what_fails_is_said_and_this_process_lives_on(tmp_path):
    said = rehearsing(written(tmp_path))((Dose(TREATMENTS["fused-optimizer"], ("7",)),))
    assert said == "IndexError: list index out of range"


def test_what_takes_too_long_is_ended(tmp_path):
    said = rehearsing(written(tmp_path), 0.01)((Dose(TREATMENTS["fused-optimizer"], ("0",)),))
    assert said.startswith("not done after")


def test_a_capture_without_a_device_fails_here_and_not_there(tmp_path):
    asked = f'{{"target": "{written(tmp_path)}", "doses": [["whole-step-graph", ["step"]]]}}'
    assert main(asked) is not None


def test_only_a_file_can_be_made_again(tmp_path):
    assert is_a_file(written(tmp_path))
    assert not is_a_file("made.py:up")
    assert not is_a_file("anything")
