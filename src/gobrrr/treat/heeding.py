"""A captured step in the hands of a program: what it may change between two steps, and what it may not.

A graph has its numbers from when it was captured. Rates lie in tensors that it reads: what a program sets in their
place is poured into them. All other settings of an optimizer are in its kernels, as is the mode of a model, and an
optimizer that loads has other moments than those that the graph updates: then the graph is left, with a warning.
"""

import warnings
from typing import Any

from gobrrr.treat.optimizers import Rates
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import graphless
from gobrrr.workload import Step


def heeding(subject: Subject, replay: Step) -> Step:
    """A step that replays as long as it would compute the same."""
    rates = [Rates(optimizer) for optimizer in subject.optimizers]
    captured = settings(subject)

    def step() -> Any:
        for one in rates:
            one.heed()
        if settings(subject) == captured:
            return replay()
        subject.end(len(graphless(subject.plan)))
        warnings.warn(
            "an optimizer or a model is set otherwise than when the step was captured: it runs without its graph from "
            "now on. Set and load before gobrrr.apply(...).step(step), or call that again",
            stacklevel=3,
        )
        return subject.run()

    return step


def settings(subject: Subject) -> list[object]:
    """What is in the kernels of a captured step, but for its rates. Groups of parameters are known by what they are:
    an optimizer that has loaded has others. Schedules of rates leave notes of their own in them.
    """
    groups = [(one, group) for one in subject.optimizers for group in one.param_groups]
    numbers = [group.get(key) for one, group in groups for key in one.defaults if key != "lr"]
    trained = [parameter.requires_grad for _, group in groups for parameter in group["params"]]
    modes = [model.training for model in subject.models.values()]
    return [*(id(group) for _, group in groups), *map(_known, numbers), *trained, *modes]


def _known(value: object) -> object:
    """A tensor by what it is: what is in it is read anew."""
    return value if isinstance(value, bool | int | float | str | tuple | None) else id(value)
