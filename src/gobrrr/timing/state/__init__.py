"""The user's objects as they were, bit for bit: remembered before our steps run, put back after.

Whatever a step changes it must be able to reach. So we walk from the step (its closure, defaults, bound self, partial
arguments, the globals that its code names) or from the workload's fields through containers and objects, and
remember two kinds of thing:

    bindings    what a dict, list, set, attribute, closure cell or global refers to: which parameter a module has,
                which state an optimizer, whether a module trains, what a learning rate is. They are put back by
                reference, in place, so that every object stays the same object, and only where they changed.
    contents    the bytes of every tensor, copied once per storage however many tensors share it (tied weights,
                views, flat parameters) and written back into the same storage: no address moves, no rounding, no
                version counter.

Parameters, buffers, gradients, optimizer state that was absent before, schedulers, gradient scalers and key-value
caches are then no special cases. Random generators and torch's switches, which no step holds, are remembered beside.

Beyond reach, and so not put back: items drawn from an iterator; tensors that only C++ or a CUDA graph knows; globals
that are used by methods and library functions which the step calls; numpy arrays; files; the grad_fn of a view that a
step made part of its graph; the pattern of a compressed sparse tensor. `Kept.beyond` names those that the walk has met;
`Workload.reset` is for the rest and is called at the end, even after a step that raised. Version counters are not
wound back: a graph recorded inside would pass for one that is still valid.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.state.bindings import bindings
from gobrrr.timing.state.generators import global_generators, held_generators
from gobrrr.timing.state.reach import beyond, reached
from gobrrr.timing.state.switches import switches
from gobrrr.timing.state.tensors import remembered_tensors
from gobrrr.timing.state.undo import PutBack, put_all_back
from gobrrr.workload import Step, Workload, user_code


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered, for whoever wants to tell."""

    copied_bytes: int
    device_bytes: int
    """Of these, what lies on an accelerator: part of any peak of memory that is measured meanwhile."""
    beyond: tuple[str, ...]
    """What the step holds and nobody can put back, one phrase each."""
    put_back: PutBack
    """Everything, already now: whoever wants several steps from one beginning need not remember it anew for each."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may not be as it was afterwards, one sentence each."""
        return tuple(f"{phrase} cannot be put back" for phrase in self.beyond)


@contextmanager
def preserved(step: Workload | Step) -> Iterator[Kept]:
    """Everything the step reaches is afterwards what it was, also if the step raises or is interrupted.

    Give it the user's own step: what a wrapper of ours has collected would be put back too. If there is no room for
    the copies it raises Missing, and nothing has been changed.
    """
    with without_garbage_collection():  # it would walk all of torch for each of the thousand things that are made here
        things = reached(step)
        bound = [put_back for thing in things for put_back in bindings(thing)]
        tensors = remembered_tensors(things)
        generators = [*global_generators(), *held_generators(things)]
        everything = [*switches(), *generators, *bound, *(group.put_back for group in tensors)]
    with _afterwards(step, everything):
        yield Kept(
            copied_bytes=sum(group.copied_bytes for group in tensors),
            device_bytes=sum(group.device_bytes for group in tensors),
            beyond=beyond(things),
            put_back=lambda: _afterwards(step, everything).close(),
        )


def _afterwards(step: Workload | Step, everything: list[PutBack]) -> ExitStack:
    """What is to be done when it is left, both whatever the other raises."""
    stack = ExitStack()
    stack.callback(put_all_back, everything)
    stack.callback(_reset, step)
    return stack


def _reset(step: Workload | Step) -> None:
    owner = getattr(step, "__self__", step)
    if isinstance(owner, Workload) and owner.reset is not None:
        user_code(owner.reset, "the workload's reset")
