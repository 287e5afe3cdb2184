"""Decisions of the search, on a clock that steps move: what is kept, what is refused, and why."""

import math
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.errors import Missing
from gobrrr.stats import Comparison, Interval, Sample
from gobrrr.timing.steady import StepEffort
from gobrrr.treat import trial
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.edit import Edit, item
from gobrrr.treat.search import Search
from gobrrr.treat.subject import examined_subject
from gobrrr.treat.treating import Final, _confirmed, _final, _kept
from gobrrr.treat.treatment import Forecast, NotYet, Numerics, Stage, Treatment, Unfit
from gobrrr.treat.trial import Bench
from gobrrr.treat.verify import truth
from test_exam import exam

EFFORT = StepEffort(warmup_steps=6, warmup_s=100, window_s=1, window_steps=1, windows=10, budget_s=1000)


def new_clock() -> type:
    """A class: what a step reaches of objects is put back after it, and time is not."""

    class Clock:
        seconds = 0.0

        @classmethod
        def now_s(cls) -> float:
            return cls.seconds

        @staticmethod
        def synchronize() -> None:
            pass

    return Clock


@dataclass(eq=False)
class Ward:
    """A step of one second whose time and result depend on what is in force."""

    clock: type = field(default_factory=new_clock)
    force: dict[str, object] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    hides_host: set[str] = field(default_factory=set)
    host_s: dict[str, float] = field(default_factory=dict)
    noise: float = 0.0
    x: torch.Tensor = field(default_factory=lambda: torch.linspace(1, 2, 50))
    moods: random.Random = field(default_factory=lambda: random.Random(0))
    looks: int = 0
    """How often the treated step was examined."""

    def step(self) -> torch.Tensor:
        device_s = math.prod(self.factors.get(name, 1.0) for name in self.force)
        host_s = 0.0 if self.hides_host & set(self.force) else sum(self.host_s.get(name, 0.0) for name in self.force)
        self.clock.seconds += max(device_s, host_s) * (1 + self.noise * self.moods.random())
        return self.x * 2 if "wrong" not in self.force else self.x * 2.1


APPLIED: list[str] = []
"""Whose edits were made, one after the other."""


@dataclass(frozen=True)
class Made:
    """A treatment that is in force by its name."""

    ward: Ward
    name: str
    predicted: float = 2.0
    raises: BaseException | None = None
    unfit: str | None = None
    not_yet: str | None = None
    compiles_s: float = 0.0

    def sites(self, chart):
        if self.unfit:
            raise Unfit(self.unfit)
        if self.not_yet:
            raise NotYet(self.not_yet)
        return ("here",)

    def forecast(self, chart, sites):
        return Forecast(self.predicted, 1.0, self.predicted)

    def edits(self, subject, sites):
        APPLIED.append(self.name)
        self.ward.clock.seconds += self.compiles_s
        yield item(self.ward.force, self.name, value=True)
        if self.raises:
            raise self.raises


def made(
    ward: Ward, name: str, stage=Stage.STRUCTURE, group=None, allow=None, *, risky=False, instead_of=None, **kind
) -> Treatment:
    return Treatment(
        name=name,
        title=name,
        numerics=Numerics.SAME if allow is None else Numerics.LOWER,
        stage=stage,
        allow=allow,
        group=group,
        risky=risky,
        compiles=False,
        inference=False,
        instead_of=instead_of,
        moves=False,
        by_hand="",
        kind=Made(ward, name, **kind),
    )


def search_of(
    ward: Ward,
    *treatments: Treatment,
    floor_s=None,
    allowed=(),
    rehearse=lambda _plan, _most_s: None,
    examine=None,
    say=lambda _: None,
) -> Search:
    step = ward.step
    subject = examined_subject(step, step, "cpu")
    floors = SimpleNamespace(violated_s=lambda _, step_s: floor_s if floor_s and step_s < floor_s else None)
    bench = Bench(subject, ward.clock, EFFORT, truth(subject), rehearse, floors, say=say)
    looked_at = exam(step_s=1.0, host_s=0.5)

    def look():
        ward.looks += 1
        return looked_at

    return Search(bench, looked_at, examine or look, treatments, frozenset(allowed))


def searched(ward: Ward, *treatments: Treatment, budget_s=1e9, **options) -> Search:
    search = search_of(ward, *treatments, **options)
    search.bench = replace(search.bench, until_s=ward.clock.now_s() + budget_s)
    search.run()
    return search


def fails(plan, _most_s) -> str | None:
    """Whatever is rehearsed but nothing."""
    return "capture failed" if plan else None


def names(steps) -> list[str]:
    return [step.candidate.dose.treatment.name for step in steps]


def test_what_helps_is_kept_and_what_does_not_is_undone():
    ward = Ward(factors={"good": 0.5, "bad": 2.0})
    search = searched(ward, made(ward, "good"), made(ward, "bad", predicted=3.0))
    assert names(search.kept) == ["good"]
    assert search.kept[0].trial.race.comparison.speedup == pytest.approx(2)
    assert search.lost["bad"].trial.reason == "slower"
    assert list(ward.force) == ["good"]


def test_what_is_kept_is_kept_as_it_was_tried():
    """Compiled or captured once, however many are tried after it."""
    APPLIED.clear()
    ward = Ward(factors={"one": 0.5, "two": 0.8, "three": 0.9})
    searched(ward, *(made(ward, name, group="g" if name != "three" else None) for name in ward.factors))
    assert sorted(APPLIED) == ["one", "three", "two"]


def test_what_takes_minutes_waits_for_what_takes_seconds_and_what_quantizes_for_both():
    ward = Ward(factors={"quick": 0.9, "slow": 0.5, "int8": 0.4})
    quick, slow, int8 = (
        made(ward, name, predicted=predicted) for name, predicted in (("quick", 1.1), ("slow", 2.0), ("int8", 3.0))
    )
    int8 = replace(int8, numerics=Numerics.QUANTIZED)
    search = searched(ward, int8, replace(slow, compiles=True), quick)
    assert names(search.kept) == ["quick", "slow", "int8"]


def test_what_it_took_to_capture_is_to_be_won_back_too():
    """A graph is captured, and what it replays compiled, before the first step."""
    ward = Ward(factors={"captured": 0.5})
    search = searched(ward, made(ward, "captured", compiles_s=30.0))
    assert search.kept[0].trial.compile_s == pytest.approx(30)


def test_no_difference_is_no_gain():
    ward = Ward()
    assert searched(ward, made(ward, "idle")).lost["idle"].trial.reason == "no faster: the same kernels run"


def test_other_numbers_are_refused_however_fast_they_come():
    ward = Ward(factors={"wrong": 0.1})
    search = searched(ward, made(ward, "wrong"))
    assert search.lost["wrong"].trial.reason.startswith("other numbers: result0")
    assert not search.kept
    assert not ward.force


def test_numbers_of_what_is_slower_are_nobodys_business():
    ward = Ward(factors={"wrong": 1.5})
    lost = searched(ward, made(ward, "wrong")).lost["wrong"].trial
    assert (lost.reason, lost.numerics) == ("slower", None)


class Clash(Ward):
    """The two do not compute the same together, and each alone does."""

    def step(self) -> torch.Tensor:
        return super().step() * (1.05 if {"one", "graph"} <= set(self.force) else 1)


def test_what_is_wrong_in_a_graph_may_be_right_and_faster_without_it():
    ward = Clash(factors={"graph": 0.5, "one": 0.3})
    search = searched(ward, made(ward, "graph", Stage.GRAPH, predicted=3.0), made(ward, "one"))
    assert names(search.kept) == ["one"]
    assert search.lost["graph"].trial.reason == "one is faster in its place"


def test_faster_than_the_compulsory_floor_is_refused():
    ward = Ward(factors={"magic": 0.01})
    assert "below the compulsory floor" in searched(ward, made(ward, "magic"), floor_s=0.1).lost["magic"].trial.reason


def test_a_noisy_machine_cannot_decide():
    ward = Ward(factors={"maybe": 0.97}, noise=2.0)
    search = searched(ward, made(ward, "maybe"))
    assert not search.kept
    assert "cannot decide" in search.lost["maybe"].trial.reason


@dataclass(eq=False)
class Restless(Ward):
    """Compiled, and again for each new word that it reads."""

    words: Iterator[str] = ()
    read: Callable = None

    def step(self) -> torch.Tensor:
        if self.force:
            self.read(torch.ones(2), next(self.words))
        return super().step()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (map(str, count()), "something was compiled again while it was timed"),
        (chain(repeat("one", 20), repeat("two")), None),
    ],
    ids=["in every step", "once, in its first race"],
)
def test_what_is_compiled_while_it_is_timed_is_raced_again_and_refused_if_that_has_no_end(words, reason):
    torch.compiler.reset()
    said = []
    read = torch.compile(lambda x, word: x * len(word), backend="eager")
    ward = Restless(factors={"restless": 0.5}, words=words, read=read)
    with patient_compiler():
        search = searched(ward, made(ward, "restless"), say=said.append)
    assert any("racing again" in one for one in said)
    assert bool(search.kept) == (reason is None)
    assert reason is None or search.lost["restless"].trial.reason.startswith(reason)
    assert reason is None or not search.lost["restless"].trial.is_sound, "and has no speed to be told"


def test_what_is_compiled_in_the_last_race_is_told():
    torch.compiler.reset()
    read = torch.compile(lambda x, word: x * len(word), backend="eager")
    ward = Restless(factors={"restless": 0.5}, words=repeat("one"), read=read)
    with patient_compiler():
        search = searched(ward, made(ward, "restless"))
        assert not search.warnings
        ward.words = map(str, count())
        _final(search.bench, search, exam(step_s=1.0, host_s=0.5))
    assert "in the last race something was compiled again" in search.warnings[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("backend broke\nmore"), "RuntimeError: backend broke more"),
        (RuntimeError("CUDA out of memory. Tried"), "out of memory"),
        (Unfit("no site left"), "no site left"),
    ],
)
def test_a_treatment_that_raises_is_refused_and_leaves_nothing(error, reason):
    ward = Ward(factors={"good": 0.5})
    search = searched(ward, made(ward, "broken", predicted=9.0, raises=error), made(ward, "good"))
    assert search.lost["broken"].trial.reason == reason
    assert names(search.kept) == ["good"]
    assert list(ward.force) == ["good"]


@pytest.mark.parametrize("group", [None, "g"], ids=["kept already", "the best of its kind so far"])
def test_an_interrupt_keeps_what_was_found(group):
    ward = Ward(factors={"good": 0.5})
    good = made(ward, "good", predicted=9.0, group=group)
    cut = made(ward, "cut", predicted=8.0, group=group, raises=KeyboardInterrupt())
    treatments = good, cut, made(ward, "later", predicted=1.5)
    search = search_of(ward, *treatments)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert names(search.kept) == ["good"]
    assert list(ward.force) == ["good"]
    assert search.passed_over["later"] == (None if group else 1.5, "the search was interrupted")


def test_of_those_that_exclude_each_other_the_fastest_is_kept():
    ward = Ward(factors={"one": 0.8, "two": 0.5, "three": 0.9})
    search = searched(ward, *(made(ward, name, group="g", predicted=5 - i) for i, name in enumerate(ward.factors)))
    assert names(search.kept) == ["two"]
    assert set(search.lost) == {"one", "three"}
    assert search.lost["one"].trial.numerics is not None
    assert search.lost["three"].trial.numerics is None, "nobody would keep it, and to check takes long"
    assert search.lost["three"].trial.reason == "another of its kind is faster; its numbers were not checked"


def test_what_could_not_gain_what_another_of_its_kind_has_gained_is_not_tried():
    ward = Ward(factors={"strong": 0.25, "weak": 0.5})
    group = {"group": "one"}
    search = searched(ward, made(ward, "strong", predicted=5.0, **group), made(ward, "weak", predicted=3.0, **group))
    assert names(search.kept) == ["strong"]
    assert search.passed_over["weak"] == (3.0, "strong gains more than it could")
    assert not search.lost


def test_what_lost_by_the_host_has_a_second_chance_in_a_graph():
    """Regions fuse better and ask for more: without a graph the whole wins, with it the regions."""
    ward = Ward(
        factors={"whole": 0.6, "regions": 0.4, "graph": 1.0},
        host_s={"whole": 0.7, "regions": 0.9},
        hides_host={"graph"},
    )
    fusion = {"stage": Stage.FUSION, "group": "fusion"}
    search = searched(
        ward,
        made(ward, "whole", predicted=3.0, **fusion),
        made(ward, "regions", predicted=3.0, **fusion),
        made(ward, "graph", stage=Stage.GRAPH, group="graph", predicted=1.1),
    )
    assert names(search.kept) == ["graph", "regions"]
    assert [dose.treatment.name for dose in search.bench.subject.plan] == ["regions", "graph"]
    assert "faster in its place" in search.lost["whole"].trial.reason


def test_what_cannot_be_captured_may_take_the_place_of_the_graph():
    ward = Ward(factors={"graph": 0.9, "fused": 0.3})
    graph = made(ward, "graph", stage=Stage.GRAPH, group="graph", predicted=3.0, risky=True)
    fused = made(ward, "fused", stage=Stage.FUSION, group="fusion")
    search = searched(ward, graph, fused, rehearse=lambda plan, _: "capture failed" if len(plan) > 1 else None)
    assert names(search.kept) == ["fused"]
    assert list(ward.force) == ["fused"]
    assert search.lost["graph"].trial.reason == "fused is faster in its place"


def test_too_little_to_gain_is_not_tried_and_says_so():
    ward = Ward()
    search = searched(ward, made(ward, "small", predicted=1.01), made(ward, "never", unfit="not here"))
    assert search.passed_over == {"small": (1.01, "too little to gain"), "never": (None, "not here")}


def test_what_changes_numbers_has_to_be_allowed():
    ward = Ward(factors={"narrow": 0.5})
    narrow = made(ward, "narrow", allow="bf16")
    assert "--allow bf16" in searched(ward, narrow).passed_over["narrow"][1]
    assert names(searched(ward, narrow, allowed=["bf16"]).kept) == ["narrow"]


def test_what_cannot_be_weighed_is_passed_over_and_others_are_tried():
    class Broken(Made):
        def sites(self, chart):
            raise RuntimeError("get_submodule is not supported on ScriptModules")

    ward = Ward(factors={"good": 0.5})
    broken = replace(made(ward, "broken"), kind=Broken(ward, "broken"))
    search = searched(ward, broken, made(ward, "good"))
    assert names(search.kept) == ["good"]
    assert "could not be weighed: RuntimeError: get_submodule" in search.passed_over["broken"][1]


def test_no_trial_begins_after_the_budget():
    ward = Ward(factors={"good": 0.5, "other": 0.5})
    others = made(ward, "other"), made(ward, "another", predicted=1.5)
    search = searched(ward, made(ward, "good", predicted=3.0), *others, budget_s=20)
    assert names(search.kept) == ["good"]
    assert search.unseen
    assert search.passed_over == dict.fromkeys(("other", "another"), (None, "the budget is spent"))


def test_what_was_never_for_this_step_is_not_left_out_by_the_budget():
    """What another treatment has to do first may have become possible: nobody knows."""
    ward = Ward(factors={"good": 0.5})
    never, later = made(ward, "never", unfit="not here"), made(ward, "later", not_yet="nothing is compiled")
    search = searched(ward, made(ward, "good"), never, later, made(ward, "narrow", allow="bf16"), budget_s=20)
    assert names(search.kept) == ["good"]
    assert search.passed_over == {
        "never": (None, "not here"),
        "later": (None, "the budget is spent"),
        "narrow": (None, "changes numbers: --allow bf16"),
    }


def test_a_rival_for_whose_race_no_time_was_left_was_not_beaten():
    ward = Ward(factors={"first": 0.5, "second": 0.4})
    rivals = made(ward, "first", group="g", predicted=5.0), made(ward, "second", group="g", predicted=4.0)
    search = searched(ward, *rivals, budget_s=20)
    assert names(search.kept) == ["first"]
    assert search.passed_over == {"second": (4.0, "the budget is spent")}


def test_what_was_tried_before_is_not_told_as_not_tried_when_the_budget_ends_its_second_chance():
    ward = Ward(factors={"one": 0.5, "two": 0.6, "three": 0.7})
    rivals = [made(ward, name, group="g", predicted=5.0) for name in ward.factors]
    search = searched(ward, *rivals)
    again = [search.lost[name].candidate for name in ("two", "three")]
    search.bench = replace(search.bench, until_s=ward.clock.now_s() + 20)
    search._best(again)
    assert set(search.lost) >= {"three"}
    assert "three" not in search.beaten


def test_what_failed_in_a_rehearsal_that_took_all_the_budget_is_not_tried_without_it():
    ward = Ward(factors={"graph": 0.9, "fused": 0.3})
    graph = made(ward, "graph", stage=Stage.GRAPH, group="graph", predicted=3.0, risky=True)
    fused = made(ward, "fused", stage=Stage.FUSION, group="fusion")

    def rehearse(plan, most_s):
        if len(plan) > 1:
            ward.clock.seconds += most_s
            return "not done"
        return None

    APPLIED.clear()
    search = searched(ward, graph, fused, rehearse=rehearse, budget_s=300)
    assert names(search.kept) == ["graph"]
    assert APPLIED == ["graph"]


def test_what_stands_in_for_another_waits_for_it_to_fail():
    ward = Ward(factors={"graph": 0.5, "parts": 0.8})
    graph = made(ward, "graph", group="graph", predicted=2.0, risky=True)
    parts = made(ward, "parts", group="graph", predicted=3.0, instead_of="graph")
    assert names(searched(ward, parts, graph).kept) == ["graph"]
    ward.force.clear()
    search = searched(ward, parts, graph, rehearse=fails)
    assert names(search.kept) == ["parts"]
    assert search.lost["graph"].trial.reason == "failed when rehearsed: capture failed"


def test_what_stands_in_for_another_and_was_never_needed_says_so():
    ward = Ward(factors={"graph": 2.0})
    graph, parts = made(ward, "graph"), made(ward, "parts", predicted=3.0, instead_of="graph")
    search = search_of(ward, parts, graph)
    search._weigh()
    assert search.passed_over == {"parts": (3.0, "graph does more")}


def test_nobody_rehearses_or_compiles_for_longer_than_the_budget_has_left():
    told = []
    ward = Ward(factors={"good": 0.5})
    good = made(ward, "good", risky=True, compiles_s=0.25)
    searched(ward, good, budget_s=300, rehearse=lambda plan, most_s: told.append((len(plan), most_s)))
    assert told == [(0, 300.0), (1, 300.0)]


def test_a_first_step_is_given_up_when_the_budget_is_spent(monkeypatch):
    patience = []

    @contextmanager
    def noted(seconds):
        patience.append(seconds)
        yield

    monkeypatch.setattr(trial, "given_up_after", noted)
    ward = Ward(factors={"good": 0.5})
    searched(ward, made(ward, "good", compiles_s=100), budget_s=300)
    assert patience == [200.0]


def test_what_was_compiled_in_a_rehearsal_has_cost_that_long():
    ward = Ward(factors={"good": 0.5})

    def rehearse(plan, _most_s):
        ward.clock.seconds += 60 if plan else 1000  # to make the workload is no part of it

    search = searched(ward, made(ward, "good", risky=True, compiles_s=3.0), rehearse=rehearse)
    (kept,) = search.kept
    assert kept.trial.compile_s == pytest.approx(60 - 0.5)
    told = _kept(kept, search.bench.subject)
    assert (told.compile_s, told.break_even_steps) == pytest.approx((59.5, 59.5 / 0.5))


def test_what_the_budget_leaves_out_is_told_with_its_bound():
    ward = Ward()
    others = made(ward, "other"), made(ward, "another", predicted=1.5)
    search = searched(ward, made(ward, "idle", predicted=3.0), *others, budget_s=20)
    assert not search.unseen
    assert search.passed_over == {
        name: (bound, "the budget is spent") for name, bound in (("other", 2.0), ("another", 1.5))
    }


@pytest.mark.parametrize(("budget_s", "looks"), [(20, 0), (1e9, 1)])
def test_what_is_kept_is_examined_as_long_as_something_may_follow(budget_s, looks):
    ward = Ward(factors={"good": 0.5})
    assert names(searched(ward, made(ward, "good"), budget_s=budget_s).kept) == ["good"]
    assert ward.looks == looks


def test_what_is_slower_in_the_end_is_not_kept_whatever_it_won_before():
    ward = Ward(factors={"good": 0.5})
    search = searched(ward, made(ward, "good"))
    before, after = Sample((1.92,)), Sample((2.0,))
    slower = Final(search.bench.subject.plan, before, after, Comparison(0.96, Interval(0.9, 1.04)))
    assert _confirmed(search, slower) == Final((), before, before, Comparison(1.0, Interval(1.0, 1.0)))
    assert not search.kept
    assert not ward.force
    assert "0.96x (0.90 to 1.04)" in search.lost["good"].trial.reason


@pytest.mark.parametrize(("low", "doubted"), [(0.86, True), (1.02, False)])
def test_what_may_be_no_faster_in_the_end_is_doubted(low, doubted):
    ward = Ward(factors={"good": 0.5})
    search = searched(ward, made(ward, "good"))
    final = Final(search.bench.subject.plan, Sample((2.1,)), Sample((2.0,)), Comparison(1.05, Interval(low, 1.1)))
    assert _confirmed(search, final) is final
    assert any("may be no faster" in one for one in search.warnings) == doubted


def test_what_is_risky_is_rehearsed_and_its_failure_is_the_reason():
    ward = Ward(factors={"graph": 0.5})
    search = searched(ward, made(ward, "graph", risky=True), rehearse=fails)
    assert search.lost["graph"].trial.reason == "failed when rehearsed: capture failed"
    assert not ward.force


@dataclass(eq=False)
class Cut(Ward):
    """^C while the step runs without a treatment, after it ran with it."""

    in_the_race_of: str | None = None
    seen: int = 0

    def step(self) -> torch.Tensor:
        if self.in_the_race_of in self.force:
            self.seen += 1
        elif self.in_the_race_of is not None and self.seen > 8:
            raise KeyboardInterrupt
        return super().step()


def test_an_interrupt_in_a_race_leaves_the_step_as_it_was_before_the_trial():
    ward = Cut(factors={"good": 0.5, "second": 0.5}, in_the_race_of="second")
    treatments = made(ward, "good", predicted=3.0), made(ward, "second", predicted=1.5)
    search = search_of(ward, *treatments)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert (
        list(ward.force)
        == [dose.treatment.name for dose in search.bench.subject.plan]
        == names(search.kept)
        == ["good"]
    )
    assert search.passed_over == {"second": (1.5, "the search was interrupted")}
    search.bench.subject.end()
    assert not ward.force


def test_an_interrupt_in_the_last_race_leaves_what_was_found_prescribed():
    """With a doubt, for before and after were not timed side by side."""
    ward = Cut(factors={"fuse": 0.5, "better": 0.25, "graph": 0.8}, hides_host={"graph"}, host_s={"better": 0.9})
    search = searched(
        ward,
        made(ward, "fuse", Stage.FUSION, "fusion", predicted=3.0),
        made(ward, "better", Stage.FUSION, "fusion", predicted=2.9),
        made(ward, "graph", Stage.GRAPH, predicted=1.5),
    )
    came = exam(step_s=1.0, host_s=0.5)
    ward.in_the_race_of, ward.seen = "better", 0
    final = _final(search.bench, search, came)
    kept = [dose.treatment.name for dose in final.plan]
    assert sorted(kept) == sorted(names(search.kept)) == sorted(ward.force) == ["better", "graph"]
    assert (final.before.median, final.after.median) == pytest.approx((1.0, 0.2))
    assert final.comparison.speedup == pytest.approx(5)
    assert "not timed side by side" in search.warnings[0]


def test_an_interrupt_while_treatments_are_weighed_is_no_reason_to_forget_one():
    class Slow(Made):
        def sites(self, chart):
            raise KeyboardInterrupt

    ward = Ward()
    treatments = made(ward, "first"), replace(made(ward, "slow"), kind=Slow(ward, "slow")), made(ward, "last")
    search = search_of(ward, *treatments)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.passed_over == dict.fromkeys(("first", "slow", "last"), (None, "the search was interrupted"))


def test_an_interrupt_while_the_treated_step_is_examined_leaves_it_unseen():
    def cut():
        raise KeyboardInterrupt

    ward = Ward(factors={"good": 0.5})
    treatments = made(ward, "good", predicted=3.0), made(ward, "other")
    search = search_of(ward, *treatments, examine=cut)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert names(search.kept) == ["good"]
    assert search.unseen
    assert search.passed_over == {"other": (None, "the search was interrupted")}


def test_an_interrupt_while_something_is_taken_takes_it():
    """Taking is what a finished trial comes to: the step as its plan says, and the plan as the report says."""
    ward = Ward(factors={"good": 0.5})
    force, armed = ward.force, []

    class Cutting(Made):
        def edits(self, subject, sites):
            def write(new):
                if armed:
                    signal.raise_signal(signal.SIGINT)
                if new is None:
                    del force["good"]
                else:
                    force["good"] = new

            yield Edit(lambda: force.get("good"), write, "on")

    treatments = (replace(made(ward, "good"), kind=Cutting(ward, "good")),)

    def say(said):
        if said == "good: 2.00x":
            armed.append(said)

    search = search_of(ward, *treatments, say=say)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert names(search.kept) == [dose.treatment.name for dose in search.bench.subject.plan] == list(force) == ["good"]


def test_who_waits_is_told_what_is_being_done():
    ward, said = Ward(factors={"good": 0.5}), []
    search_of(ward, made(ward, "good", risky=True), say=said.append).run()
    assert said == [
        "good, predicted 2.00x",
        "  rehearsing it in a process of its own",
        "  racing",
        "  checking its numbers",
        "good: 2.00x",
        "keeping good: 2.00x, 500 ms a step by now",
    ]


def test_what_was_not_raced_side_by_side_is_not_disowned():
    ward = Ward(factors={"good": 0.97})
    search = searched(ward, made(ward, "good"))
    slow, slower = Sample((0.95,)), Sample((0.97,))
    final = Final(search.bench.subject.plan, slow, slower, Comparison(0.98, Interval(0.98, 0.98)), side_by_side=False)
    assert _confirmed(search, final) is final
    assert names(search.kept) == ["good"]


def test_what_could_not_be_examined_is_unseen_and_the_search_goes_on():
    def fails():
        raise Missing("no profiler")

    ward = Ward(factors={"good": 0.5, "other": 0.5})
    treatments = made(ward, "good", predicted=3.0), made(ward, "other")
    search = search_of(ward, *treatments, examine=fails)
    search.run()
    assert names(search.kept) == ["good", "other"]
    assert search.unseen
    assert "good could not be examined" in search.warnings[0]


def test_what_was_never_for_the_step_is_told_as_that_whatever_of_its_kind_is_kept():
    ward = Ward(factors={"good": 0.5})
    others = made(ward, "idle", group="g", unfit="it has no loss"), made(ward, "small", group="g", predicted=1.001)
    search = searched(ward, made(ward, "good", group="g"), *others)
    assert names(search.kept) == ["good"]
    assert search.passed_over["idle"] == (None, "it has no loss")
    assert search.passed_over["small"] == (None, "another of its kind is kept")
