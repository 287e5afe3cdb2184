"""Edits swap: on and off any number of times leaves what was there, and a failure leaves nothing behind."""

import signal
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.treat.edit import Edit, attribute, data, held_by_all, item, number, rebinding, shared, swap_off, swap_on
from gobrrr.treat.subject import Subject


class Thing:
    kind = "class"

    def __init__(self) -> None:
        self.own = "own"


@given(st.lists(st.tuples(st.sampled_from(["own", "kind", "new"]), st.integers()), max_size=8))
def test_any_sequence_of_edits_is_undone_by_its_reverse(changes):
    thing, mapping = Thing(), {"own": 1}
    before = (dict(vars(thing)), dict(mapping))
    edits = [attribute(thing, *change) for change in changes] + [item(mapping, *change) for change in changes]
    done = swap_on(edits)
    for name, value in dict(changes).items():
        assert getattr(thing, name) == mapping[name] == value
    swap_off(done)
    assert (vars(thing), mapping) == before
    assert thing.kind == "class"


def test_edits_before_one_that_fails_are_undone():
    thing = Thing()

    def edits():
        yield attribute(thing, "own", "other")
        assert thing.own == "other"  # in force while the next one is made
        raise RuntimeError("compiler")

    with pytest.raises(RuntimeError, match="compiler"):
        swap_on(edits())
    assert thing.own == "own"


def test_a_count_of_steps_moves_with_its_value():
    state = {"step": torch.tensor(7.0)}
    first = state["step"]
    edit = number(state, "step", torch.zeros(()))
    edit.swap()
    state["step"].add_(1)
    edit.swap()
    assert state["step"] is first
    assert first == 8


def test_numbers_in_another_layout_carry_what_training_made_of_them():
    weight = torch.nn.Parameter(torch.randn(2, 3, 4, 4))
    first, values = weight.data_ptr(), weight.detach().clone()
    edit = data(weight, torch.empty_like(weight.data, memory_format=torch.channels_last))
    edit.swap()
    assert weight.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        weight.add_(1)
    edit.swap()
    assert weight.data_ptr() == first
    assert torch.equal(weight, values + 1)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_method_of_a_traced_module_can_be_replaced_and_comes_back():
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    edit = attribute(traced, "zero_grad", lambda: "nothing")
    edit.swap()
    assert traced.zero_grad() == "nothing"
    edit.swap()
    assert traced.zero_grad() is None


def interrupting(thing: Thing, name: str, value: object) -> Edit:
    """A ^C comes while it is swapped."""

    def write(new):
        signal.raise_signal(signal.SIGINT)
        setattr(thing, name, new)

    return Edit(lambda: getattr(thing, name), write, value)


def dose_of(*edits: Edit) -> SimpleNamespace:
    return SimpleNamespace(sites=(), treatment=SimpleNamespace(edits=lambda _subject, _sites: iter(edits)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_a_process_shares_stays_as_long_as_anybody_wants_it_and_is_then_as_it_was(order):
    owner = SimpleNamespace(name="before")
    edits = [shared(owner, "name", "ours") for _ in range(2)]
    for edit in edits:
        edit.swap()
        assert owner.name == "ours"
    edits[order[0]].swap()
    assert owner.name == "ours"
    edits[order[1]].swap()
    assert owner.name == "before"
    edits[0].swap()
    assert owner.name == "ours"
    edits[0].swap()
    assert owner.name == "before"


def test_an_interrupt_between_two_ways_to_be_treated_waits_until_one_is_in_force():
    thing, other = Thing(), Thing()
    subject = Subject(step=lambda: None, origin=lambda: None, models={}, optimizers=[], inputs=[], device="cpu")
    turn = subject.become((dose_of(attribute(other, "own", 1)), dose_of(attribute(thing, "own", 1))))
    turn.after[0].edits.append(interrupting(thing, "kind", "class"))
    turn.after[0].edits[-1].on = True
    for switch, courses, value in ((turn.to_before, 0, "own"), (turn.to_after, 2, 1)):
        with pytest.raises(KeyboardInterrupt):
            switch()
        assert len(subject.courses) == courses
        assert (thing.own, other.own) == (value, value)
    with pytest.raises(KeyboardInterrupt):
        subject.end()
    assert (thing.own, other.own) == ("own", "own")


def test_what_could_not_be_undone_is_still_in_force_and_may_be_undone_again():
    thing, other, full = Thing(), Thing(), []

    def write(new):
        if full:
            raise MemoryError
        thing.kind = new

    subject = Subject(step=lambda: None, origin=lambda: None, models={}, optimizers=[], inputs=[], device="cpu")
    kind = Edit(lambda: thing.kind, write, "treated")
    turn = subject.become((dose_of(attribute(other, "own", 1)), dose_of(kind, attribute(thing, "own", 1))))
    full.append(True)
    with pytest.raises(MemoryError):
        turn.to_before()
    assert (thing.kind, thing.own, other.own, len(subject.courses)) == ("treated", "own", "own", 1)
    full.clear()
    turn.to_after()
    assert (thing.kind, thing.own, other.own) == ("treated", 1, 1)
    turn.to_before()
    assert (thing.kind, thing.own, other.own, subject.courses) == ("class", "own", "own", [])


def test_an_interrupt_while_a_dose_is_given_leaves_none_of_it():
    thing = Thing()
    subject = Subject(step=lambda: None, origin=lambda: None, models={}, optimizers=[], inputs=[], device="cpu")
    with pytest.raises(KeyboardInterrupt):
        subject.become((dose_of(attribute(thing, "own", 1), interrupting(thing, "kind", "other")),))
    assert (thing.own, thing.kind, subject.courses) == ("own", "class", [])


def test_an_interrupt_while_a_dose_that_failed_is_taken_back_leaves_what_was_in_force():
    thing, armed = Thing(), []

    def write(new):
        if armed:
            signal.raise_signal(signal.SIGINT)
        thing.kind = new

    def failing(_subject, _sites):
        yield Edit(lambda: thing.kind, write, "other")
        armed.append(True)
        raise RuntimeError("compiler")

    subject = Subject(step=lambda: None, origin=lambda: None, models={}, optimizers=[], inputs=[], device="cpu")
    subject.become((dose_of(attribute(thing, "own", 1)),))
    bad = SimpleNamespace(sites=(), treatment=SimpleNamespace(edits=failing))
    with pytest.raises(KeyboardInterrupt):
        subject.become((bad,))
    assert (thing.own, thing.kind, len(subject.courses)) == (1, "class", 1)


def test_a_name_that_steps_give_away_means_at_last_what_it_meant_at_first():
    holder = {"loss": "first"}
    edit = rebinding(lambda: holder["loss"], partial(holder.__setitem__, "loss"), "captured")
    for left in ("by one step", "by another"):
        edit.swap()
        assert holder["loss"] == "captured"
        holder["loss"] = left
        edit.swap()
        assert holder["loss"] == "first"
        holder["loss"] = left


def test_what_the_whole_process_shares_is_still_held_where_ending_it_failed():
    thing, armed = Thing(), []

    def write(new):
        if armed:
            armed.clear()
            raise RuntimeError("busy")
        thing.kind = new

    first, second = (held_by_all("key", lambda: Edit(lambda: thing.kind, write, "other")) for _ in range(2))
    first.swap()
    second.swap()
    first.swap()
    armed.append(True)
    with pytest.raises(RuntimeError, match="busy"):
        second.swap()
    assert (thing.kind, second.on) == ("other", True)
    second.swap()
    assert (thing.kind, second.on) == ("class", False)
