"""The attendant with made-up examinations: what happens to them happens to nobody else."""

import pytest
import torch
from torch import nn

from gobrrr.errors import CannotDecide
from gobrrr.integrations import attendant
from gobrrr.integrations.attendant import LOOKED_AT, Attendant, Stopped
from gobrrr.steps import Ended, Spoiled
from test_exam import exam

FOUND = 4
"""Steps until the period is known: the first one only shows what there is."""


class Told:
    """What a person would see, and an examination that waits for `wanted` steps and then answers."""

    def __init__(self, monkeypatch, examination, **options):
        self.said, self.reported = [], []
        monkeypatch.setattr(attendant, "examination", lambda *_, **__: examination())
        self.attendant = Attendant("mine.py", self.reported.append, self.said.append, **options)
        self.attendant.begin()
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def pass_steps(self, number: int) -> None:
        for _ in range(number):
            self.model(torch.ones(3, 4)).sum().backward()
            self.optimizer.step()

    @property
    def hooked(self) -> bool:
        return "step" in vars(self.optimizer) or bool(self.model._forward_hooks)


@pytest.fixture
def attended(monkeypatch):
    made = []

    def make(examination, **options) -> Told:
        made.append(Told(monkeypatch, examination, **options))
        return made[-1]

    yield make
    for one in made:
        one.attendant.end()


def waiting(steps: int):
    yield 0
    yield steps
    return exam()


def test_the_exam_is_reported_where_its_last_step_ends_and_nothing_stays(attended):
    told = attended(lambda: waiting(3))
    told.pass_steps(FOUND + LOOKED_AT + 2)
    assert told.hooked
    assert not told.reported
    told.pass_steps(1)
    assert [one.step_period for one in told.reported] == [1]
    assert not told.hooked
    assert told.said == []


def test_stop_leaves_the_program_as_exit_does(attended):
    told = attended(lambda: waiting(1), stop=True)
    with pytest.raises(Stopped) as stopped:
        told.pass_steps(100)
    assert stopped.value.code == 0
    assert len(told.reported) == 1


def test_what_cannot_be_decided_is_said_and_the_program_goes_on(attended):
    def undecided():
        yield 1
        raise CannotDecide("too noisy")

    told = attended(undecided)
    told.pass_steps(20)
    assert (told.said, told.reported, told.hooked) == (["too noisy"], [], False)


def test_a_bug_of_ours_is_said_and_the_program_goes_on(attended):
    def broken():
        yield 1
        raise KeyError("ours")

    told = attended(broken)
    told.pass_steps(20)
    (said,) = told.said
    assert said.startswith("the error below is a bug of gobrrr's, please report it")
    assert "KeyError: 'ours'" in said
    assert not told.hooked


def test_an_interrupt_while_we_report_costs_no_verdict_and_reaches_the_program(attended):
    told = attended(lambda: waiting(1))
    reports = iter((KeyboardInterrupt(),))

    def interrupted(found):
        told.reported.append(found)
        for one in reports:
            raise one

    told.attendant._report = interrupted
    with pytest.raises(KeyboardInterrupt):
        told.pass_steps(20)
    assert len(told.reported) == 2


def test_an_interrupt_in_the_examination_reaches_the_program_and_is_said(attended):
    def measuring():
        yield 1
        raise KeyboardInterrupt

    told = attended(measuring)
    with pytest.raises(KeyboardInterrupt):
        told.pass_steps(20)
    assert told.said == ["interrupted before the verdict"]
    assert not told.hooked


def test_a_step_of_another_shape_spoils_what_saw_it(attended):
    seen = []

    def watching():
        while len(seen) < 3:
            try:
                yield 1
                seen.append("usual")
            except Spoiled as spoiled:
                seen.append(f"spoiled {spoiled.mid_step}")
        return exam()

    told = attended(watching)
    told.pass_steps(FOUND + LOOKED_AT + 1)
    told.model(torch.ones(7, 4)).sum().backward()
    told.optimizer.step()
    told.attendant.before_fork()
    assert seen == ["usual", "spoiled False", "spoiled True"]
    (found,) = told.reported
    assert found.quality.warnings[-1].startswith("steps of 2 shapes passed: those of one, 8")


def test_whoever_still_waits_at_the_end_is_told_so_until_he_answers(attended):
    def patient():
        for _ in range(2):
            try:
                yield 100
            except Ended:
                continue
        return exam()

    told = attended(patient)
    told.pass_steps(20)
    told.attendant.end()
    assert (len(told.reported), told.said) == (1, [])
