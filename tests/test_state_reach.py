"""What a bare step holds is found, wherever it holds it, and comes back; what cannot is named."""

import functools
import gc
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from gobrrr.errors import ProgramFailed
from gobrrr.timing.state import preserved
from gobrrr.workload import Workload
from test_state import picture, workload

MODEL = nn.Linear(2, 2)
COUNT = 0
LATER: Any


def global_step() -> None:
    global COUNT, LATER  # noqa: PLW0603 (a script's step does this)
    COUNT += 1
    LATER = MODEL(torch.ones(1, 2)).sum()
    LATER.backward()
    helper()


def helper() -> None:
    with torch.no_grad():
        MODEL.weight.add_(1)


def test_globals_that_a_step_and_its_helpers_name_come_back():
    before = picture(MODEL)
    with preserved(global_step):
        global_step()
        assert COUNT == 1
    assert COUNT == 0
    assert "LATER" not in globals()
    assert picture(MODEL) == before


def held_by_closure(model: nn.Module) -> Callable[[], Any]:
    def step() -> None:
        model.weight.data.add_(1)

    return step


def held_by_inner_closure(model: nn.Module) -> Callable[[], Any]:
    inner = held_by_closure(model)
    return lambda: [inner() for _ in range(2)]


def held_by_default(model: nn.Module) -> Callable[[], Any]:
    def step(model: nn.Module = model, *, other: nn.Module = model) -> None:
        other.weight.data.add_(1)

    return step


def held_by_partial(model: nn.Module) -> Callable[[], Any]:
    return functools.partial(lambda first, *, second: second.weight.data.add_(1), model, second=model)


def held_by_self(model: nn.Module) -> Callable[[], Any]:
    class Trainer:
        def __init__(self) -> None:
            self.parts = {"model": model}

        def step(self) -> None:
            self.parts["model"].weight.data.add_(1)

    return Trainer().step


def held_by_callable(model: nn.Module) -> Callable[[], Any]:
    class Call:
        __slots__ = ("model",)

        def __call__(self) -> None:
            self.model.weight.data.add_(1)

    call = Call()
    call.model = model
    return call


def held_by_namespace(model: nn.Module) -> Callable[[], Any]:
    space = types.SimpleNamespace(model=model)
    return lambda: space.model.weight.data.add_(1)


def held_by_method(model: nn.Module) -> Callable[[], Any]:
    return functools.partial(model.weight.data.add_, 1)


def held_by_proxy(model: nn.Module) -> Callable[[], Any]:
    space = types.SimpleNamespace(model=weakref.proxy(model))
    return lambda: space.model.weight.data.add_(1)


def held_by_wrapper(model: nn.Module) -> Callable[[], Any]:
    step = held_by_closure(model)
    return functools.wraps(step)(lambda: [step()])


@pytest.mark.parametrize(
    "held",
    [
        held_by_closure,
        held_by_inner_closure,
        held_by_default,
        held_by_partial,
        held_by_self,
        held_by_callable,
        held_by_namespace,
        held_by_method,
        held_by_proxy,
        held_by_wrapper,
    ],
)
def test_a_bare_step_is_searched_for_what_it_holds(held):
    model = nn.Linear(2, 2)
    before = picture(model)
    step = held(model)
    with preserved(step):
        step()
        assert picture(model) != before
    assert picture(model) == before


def test_a_compiled_step_is_searched_too():
    model = nn.Linear(2, 2)
    before = picture(model)
    step = torch.compile(held_by_closure(model), backend="eager")
    compiled = torch.compile(model, backend="eager")
    with preserved(lambda: (step(), compiled(torch.ones(1, 2)))) as kept:
        step()
        compiled(torch.ones(1, 2)).sum().backward()
    assert kept.copied_bytes == 24
    assert picture(model) == before


def test_variables_that_a_closure_rebinds_come_back():
    count, cache = 0, None

    def step() -> None:
        nonlocal count, cache
        count += 1
        cache = torch.ones(count)

    with preserved(step):
        step()
        assert count == 1
    assert (count, cache) == (0, None)


def test_a_variable_that_had_no_value_has_none_again():
    def step() -> None:
        nonlocal late
        late = torch.ones(1)

    cell = step.__closure__[0]
    with preserved(step):
        step()
    with pytest.raises(ValueError, match="empty"):
        _ = cell.cell_contents
    late = None


@dataclass
class Layer:
    keys: torch.Tensor | None = None


@dataclass(slots=True)
class Cache:
    """Grows as a key-value cache does: by other tensors, and by objects made late."""

    layers: list[Layer] = field(default_factory=list)
    length: int = 0

    def update(self) -> None:
        if not self.layers:
            self.layers.append(Layer())
        old = self.layers[0].keys
        self.layers[0].keys = torch.ones(1) if old is None else torch.cat([old, torch.ones(1)])
        self.length += 1


@pytest.mark.parametrize("filled", [0, 2])
def test_a_cache_that_grows_is_as_long_as_it_was(filled):
    class Decoder(nn.Module):
        def forward(self, cache: Cache) -> None:
            cache.update()

    cache = Cache()
    for _ in range(filled):
        cache.update()
    patient = Workload(Decoder(), {"cache": cache})
    keys = cache.layers[0].keys if filled else None
    with preserved(patient):
        patient.step()
        patient.step()
        assert cache.length == filled + 2
    assert cache.length == filled
    assert len(cache.layers) == bool(filled)
    assert not filled or cache.layers[0].keys is keys


def test_containers_of_every_kind_come_back_in_place_and_in_order():
    held = [[1, 2], {"a": 1, "b": 2}, {3, 4}, deque([5], maxlen=2), OrderedDict(x=1, y=2)]
    before, same = repr(held), list(map(id, held))

    def step() -> None:
        held[0].reverse()
        held[1]["a"] = held[1].pop("b")
        held[2].add(9)
        held[3].extend([7, 8])
        held[4].move_to_end("x")
        held.pop()

    with preserved(step):
        step()
        assert repr(held) != before
    assert repr(held) == before
    assert list(map(id, held)) == same


def test_a_workloads_bound_step_is_as_good_as_the_workload():
    patient = workload()
    before = picture([patient.model, patient.optimizer])
    with preserved(patient.step):
        patient.step()
    assert picture([patient.model, patient.optimizer]) == before


def test_reset_is_called_even_after_a_step_that_raised():
    unseen = types.ModuleType("unseen")  # modules are not searched: nobody but the reset can help
    patient = Workload(nn.Linear(1, 1), torch.ones(1), reset=lambda: setattr(unseen, "was_reset", True))
    with pytest.raises(ZeroDivisionError), preserved(patient.step):
        raise ZeroDivisionError
    assert unseen.was_reset


def test_reset_is_called_whenever_everything_is_put_back():
    unseen = types.ModuleType("unseen")
    unseen.resets = 0
    patient = Workload(nn.Linear(1, 1), torch.ones(1), reset=lambda: setattr(unseen, "resets", unseen.resets + 1))
    with preserved(patient) as kept:
        kept.put_back()
        kept.put_back()
        assert unseen.resets == 2
    assert unseen.resets == 3


def test_nothing_that_was_searched_is_kept_alive():
    def made() -> Callable[[], Any]:
        held = nn.Linear(2, 2)

        class Call:
            def __call__(self) -> torch.Tensor:
                return held(torch.ones(1, 2))

        return Call()

    step = made()
    model = weakref.ref(type(step).__call__.__closure__[0].cell_contents)
    with preserved(step):
        step()
    del step
    gc.collect()
    assert model() is None


def test_a_broken_reset_is_told_and_the_state_is_back_all_the_same():
    def reset() -> None:
        raise ValueError("cannot")

    patient = Workload(nn.Linear(2, 2), torch.ones(1, 2), reset=reset)
    before = picture(patient.model)
    with pytest.raises(ProgramFailed, match="reset raised ValueError"), preserved(patient):
        patient.model.weight.data.zero_()
    assert picture(patient.model) == before


def test_what_an_iterator_gave_is_beyond_reach_and_named():
    batches: Iterator[int] = (number for number in range(9))
    loader = iter(torch.utils.data.DataLoader([1, 2, 3]))
    with preserved(lambda: (next(batches), next(loader))) as kept:
        pass
    assert set(kept.beyond) == {
        "what was drawn from a generator",
        "what was drawn from a SingleProcessDataLoaderIter",
    }


def test_a_plain_training_step_holds_nothing_beyond_reach():
    patient = workload(steps=1)
    with preserved(patient) as kept:
        pass
    assert kept.beyond == ()
    assert kept.device_bytes == 0


def test_an_iterator_of_the_users_own_is_rewound():
    class Batches:
        place = 0

        def __next__(self) -> int:
            self.place += 1
            return self.place

    batches = Batches()
    with preserved(lambda: next(batches)) as kept:
        next(batches)
    assert batches.place == 0
    assert kept.beyond == ()
