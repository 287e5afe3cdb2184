"""Random generators: those that the step holds, and those that belong to everybody."""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gobrrr.timing.state.reach import root_package
from gobrrr.timing.state.undo import PutBack


def held_generators(things: Iterable[object]) -> Iterator[PutBack]:
    for held in _held(things):
        yield partial(held.write, held.read())


def seeds(things: Iterable[object]) -> Iterator[Callable[[int], object]]:
    """How to begin each of them anew: everybody's, and those that are held."""
    import torch

    yield torch.manual_seed
    yield random.seed
    if (numpy := sys.modules.get("numpy")) is not None:
        yield numpy.random.seed
    for held in _held(things):
        yield held.seed


@dataclass(frozen=True, slots=True)
class _Held:
    """A generator of any library: its state, and how it begins anew."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    seed: Callable[[int], object]


def _held(things: Iterable[object]) -> Iterator[_Held]:
    import torch

    for thing in things:
        if isinstance(thing, torch.Generator):
            yield _Held(thing.get_state, thing.set_state, thing.manual_seed)
        elif isinstance(thing, random.Random):
            yield _Held(thing.getstate, thing.setstate, thing.seed)
        elif root_package(type(thing).__module__) == "numpy" and hasattr(thing, "bit_generator"):
            bits: Any = thing.bit_generator
            yield _Held(partial(getattr, bits, "state"), partial(setattr, bits, "state"), partial(_seed_numpy, bits))


def _seed_numpy(bits: Any, seed: int) -> None:
    bits.state = type(bits)(seed).state


def global_generators() -> Iterator[PutBack]:
    """Everybody's: numpy's only where it has been imported, an accelerator's only where it has been started."""
    import torch

    yield partial(random.setstate, random.getstate())
    yield partial(torch.set_rng_state, torch.get_rng_state())
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        yield partial(numpy_random.set_state, numpy_random.get_state())
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    module: Any = None if accelerator is None else torch.get_device_module(accelerator)
    if getattr(module, "is_initialized", bool)() and hasattr(module, "get_rng_state_all"):
        yield partial(module.set_rng_state_all, module.get_rng_state_all())
