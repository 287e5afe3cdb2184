"""A Subject: the step being treated, with what it is made of and the treatments in force."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.reach import reached
from gobrrr.timing.state.undo import interrupts_deferred, put_all_back
from gobrrr.treat.edit import Edit, swap_off, swap_on
from gobrrr.treat.in_place import InPlace
from gobrrr.workload import Step, Workload, made_step

if TYPE_CHECKING:
    import torch

    from gobrrr.treat.treatment import Dose, Plan


AND = "+"
"""Between the names of modules that are one site."""


@dataclass(slots=True)
class Course:
    """A dose in force, or ready to be: its edits."""

    dose: "Dose"
    edits: list[Edit]


@dataclass
class Subject:
    """Mutable by edits alone. `step` is what is run and timed; the rest says what there is to change in it."""

    step: Step
    """As it is treated now."""
    origin: Workload | Step
    """What the user gave: everything that the step can change is reached from here."""
    models: dict[str, "torch.nn.Module"]
    """Roots: those that are no part of another, by name."""
    optimizers: list["torch.optim.Optimizer"]
    inputs: list["torch.Tensor"]
    """Tensors that belong to no model and no optimizer; once verified, those whose numbers may stand in any order."""
    device: str
    courses: list[Course] = field(default_factory=list)
    books: list[object] | None = None
    """What the step as it came leaves changed that is no tensor, once somebody has looked."""
    logits: frozenset[tuple[int, ...]] | None = None
    """Sizes of those that the step as it came asks torch for the loss of, once somebody has listened."""

    def run(self) -> Any:
        """The step, however it is treated at that moment."""
        return self.step()

    @property
    def workload(self) -> Workload | None:
        return self.origin if isinstance(self.origin, Workload) else None

    @property
    def plan(self) -> "Plan":
        return tuple(course.dose for course in self.courses)

    def become(self, plan: Sequence["Dose"]) -> "Turn":
        """Treated so, and no otherwise; the Turn leads back and forth.

        What both plans have in common from the first dose on stays. If a dose fails, all is as it was.
        """
        common = _common(self.plan, plan)
        before: list[Course] = []
        try:
            with interrupts_deferred():
                before = self.end(common)
            for dose in plan[common:]:
                course = Course(
                    dose, swap_on(dose.treatment.edits(self, dose.sites))
                )  # which may end others for a while
                self.courses.append(course)
        except BaseException:
            with interrupts_deferred():
                self.end(common)
                self.resume(before)
            raise
        return Turn(self, common, before, self.courses[common:])

    def end(self, keep: int = 0) -> list[Course]:
        """Swaps off all courses but the first so many, and gives them. Where that fails, what is still on stays."""
        ended = self.courses[keep:]
        try:
            swap_off([edit for course in ended for edit in course.edits])
        finally:
            self.courses = self.courses[:keep] + [one for one in ended if any(edit.on for edit in one.edits)]
        return ended

    def resume(self, courses: Sequence[Course]) -> None:
        """Swaps courses on that were ended from here: nothing is compiled or captured again."""
        self.courses = [*self.courses, *courses]
        put_all_back([edit.swap for course in courses for edit in course.edits if not edit.on])

    @contextmanager
    def ended(self, keep: int = 0) -> Iterator[None]:
        """With the first so many courses alone, for a while."""
        ended: list[Course] = []
        try:
            with interrupts_deferred():
                ended = self.end(keep)
            yield
        finally:
            self.resume(ended)

    def module(self, site: str) -> "torch.nn.Module":
        """By the name that `modules` gives it."""
        root, _, path = site.partition(":")
        return self.models[root].get_submodule(path)

    def modules_at(self, site: str) -> list["torch.nn.Module"]:
        """Of a site that is several modules, all."""
        return [self.module(name) for name in site.split(AND)]

    def modules(self) -> list[tuple[str, "torch.nn.Module"]]:
        """All, each once, as `root:path`."""
        return [(f"{root}:{path}", module) for root, top in self.models.items() for path, module in top.named_modules()]

    def parameters(self) -> "dict[str, torch.Tensor]":
        """Of models, by their names; and those that only an optimizer holds, by number."""
        named = {
            f"{root}.{name}": parameter
            for root, model in self.models.items()
            for name, parameter in model.named_parameters()
        }
        known = {id(parameter) for parameter in named.values()}
        held = [one for optimizer in self.optimizers for group in optimizer.param_groups for one in group["params"]]
        free = {id(parameter): parameter for parameter in held if id(parameter) not in known}
        return named | {f"parameter {number}": parameter for number, parameter in enumerate(free.values())}


@dataclass(frozen=True, slots=True)
class Turn:
    """Between two ways in which a subject is treated, both ready."""

    subject: Subject
    keep: int
    """Courses that both have in common."""
    before: list[Course]
    after: list[Course]

    def to_before(self) -> None:
        self._to(self.before)

    def to_after(self) -> None:
        self._to(self.after)

    def _to(self, courses: list[Course]) -> None:
        with interrupts_deferred():
            self.subject.end(self.keep)
            self.subject.resume(courses)


def _common(one: Sequence["Dose"], other: Sequence["Dose"]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def subject_of(factory: Callable[[], Any], device: str | None = None) -> Subject:
    step, workload = made_step(factory)
    origin = workload if workload is not None else step
    return examined_subject(step, origin, device)


def examined_subject(step: Step, origin: Workload | Step, device: str | None = None) -> Subject:
    """What a step is made of, found by walking from it."""
    import torch

    things = reached(origin)
    modules = [thing for thing in things if isinstance(thing, torch.nn.Module)]
    inner = {id(part) for module in modules for part in module.modules() if part is not module}
    inner |= {id(thing.module) for thing in things if isinstance(thing, InPlace)}
    roots = sorted((m for m in modules if id(m) not in inner), key=is_bare)
    models = {f"model{number or ''}": each for number, each in enumerate(roots)}
    optimizers = [thing for thing in things if isinstance(thing, torch.optim.Optimizer)]
    owned = {id(thing) for owner in (*models.values(), *optimizers) for thing in reached(owner)}
    inputs = [thing for thing in things if isinstance(thing, torch.Tensor) and id(thing) not in owned]
    return Subject(step, origin, models, optimizers, inputs, device or _device(models, inputs))


def is_bare(model: "torch.nn.Module") -> bool:
    """As a loss is: models with parameters have the first names, whatever the program calls them."""
    return next(model.parameters(), None) is None


def _device(models: dict[str, "torch.nn.Module"], inputs: Sequence["torch.Tensor"]) -> str:
    parameters = (parameter for model in models.values() for parameter in model.parameters())
    first = next((tensor for tensor in (*parameters, *inputs) if tensor.device.type != "cpu"), None)
    return "cpu" if first is None else str(first.device)
