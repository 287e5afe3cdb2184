"""A prescription applied to a program that knows nothing of it: as soon as it calls the model that it is for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gobrrr.errors import GobrrrError
from gobrrr.integrations.imports import when_imported
from gobrrr.treat.outcome import PrescribedDose, Prescription
from gobrrr.treat.treatment import TREATMENTS, Stage, Treatment

if TYPE_CHECKING:
    from gobrrr.treat.prescription import Applied

Say = Callable[[str], None]


def _is_for_optimizers(dose: PrescribedDose) -> bool:
    """Its sites are their places."""
    known = _known(dose)
    return known is not None and known.stage is Stage.OPTIMIZER


def _moves(dose: PrescribedDose) -> bool:
    """An optimizer has to know, whichever it is."""
    known = _known(dose)
    return known is not None and known.moves


def _known(dose: PrescribedDose) -> Treatment | None:
    import gobrrr.treat.treatments  # noqa: F401 (registers them)

    return TREATMENTS.get(dose.treatment)


@contextmanager
def applying(prescription: Prescription, say: Say) -> Iterator[None]:
    """While the body runs; afterwards the program's objects stay as they are treated."""
    found = _Applying(prescription, say)
    with when_imported("torch", found.begin):
        try:
            yield
        finally:
            found.end()


def _silence(handle: Any) -> None:
    hooks = handle.hooks_dict_ref()
    if hooks is not None and handle.id in hooks:
        hooks[handle.id] = _does_nothing


def _does_nothing(*_args: Any) -> None:
    pass


class _Applying:
    """Listens until the model has been called, and its optimizers have made a step if something is for those."""

    def __init__(self, prescription: Prescription, say: Say) -> None:
        self._prescription, self._say = prescription, say
        places = [site for dose in prescription.doses if _is_for_optimizers(dose) for site in dose.sites]
        moves = prescription.trains and any(map(_moves, prescription.doses))
        numbers = [int(place) for place in places if place.isdecimal()]  # of another `apply` says what is wrong
        self._wanted = max((number + 1 for number in numbers), default=1 if moves else 0)
        self._hooks = ExitStack()
        self._silent: list[Any] = []
        self._model: Any = None
        self._optimizers: list[Any] = []
        self._applied: Applied | None = None
        self._refused = False

    def begin(self) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._hooks.callback(register_module_forward_pre_hook(self._called).remove)
        self._before_steps(register_optimizer_step_pre_hook(self._stepping))

    def _before_steps(self, handle: Any) -> None:
        """Until the hooks are closed, which may be in that very hook: torch is going through all of them there, and
        none may be taken away. So it does nothing from then on, and is taken away at the end.
        """
        self._hooks.callback(_silence, handle)
        self._silent.append(handle)

    def end(self) -> None:
        self._hooks.close()
        for handle in self._silent:
            handle.remove()
        if (number := self._prescription.models or 1) > 1:
            self._say(
                f"the prescription is for {number} models of one step: gobrrr.apply(..., [model, ...]) in the program"
            )
        elif self._applied is None and not self._refused:
            missed = (
                "called the model that the prescription is for"
                if self._model is None
                else f"made a step of {self._wanted} optimizers of its model, but of {len(self._optimizers)}"
            )
            self._say(f"the program never {missed}: nothing was applied")

    def _called(self, module: Any, _args: Any) -> None:
        """The first call of all may be the model's, or that of a part, of its teacher, or of a compiled one."""
        import torch

        if torch.compiler.is_compiling() or self._model is not None or not self._is_moment(module):
            return
        from gobrrr.treat.prescription import fingerprint_of

        model = getattr(module, "_orig_mod", module)
        if fingerprint_of({"model": model}) == self._prescription.model:
            self._model = model
            if not self._wanted:
                self._apply(None)

    def _is_moment(self, module: Any) -> bool:
        """What was found for training is for the model that is trained, and what was not for one that is not."""
        import torch

        trains = self._prescription.trains
        grad = torch.is_grad_enabled()
        return trains is None or (grad if trains else not (module.training and grad))

    def _stepping(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """One that holds something of the model; a discriminator's does not."""
        if self._holds_the_model(optimizer) and not any(one is optimizer for one in self._optimizers):
            self._optimizers.append(optimizer)
            if len(self._optimizers) == self._wanted:
                self._apply(self._optimizers)

    def _training(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """What is for inference, whatever mode the model is in."""
        if self._applied is not None and self._holds_the_model(optimizer):
            self._hooks.close()
            self._applied.undo()
            self._say("an optimizer steps on the model, and what is for inference is undone")

    def _holds_the_model(self, optimizer: Any) -> bool:
        from gobrrr.treat.inference import optimized

        own = () if self._model is None else self._model.parameters()
        return not set(map(id, own)).isdisjoint(map(id, optimized(optimizer)))

    def _apply(self, optimizers: list[Any] | None) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        from gobrrr.treat.prescription import apply

        self._hooks.close()  # before anything is compiled: a hook on all modules would be compiled too
        try:
            self._applied = apply(self._prescription, self._model, optimizers)
        except GobrrrError as error:
            self._refused = True
            self._say(f"{error}; the program runs on untreated")
            return
        if any(dose.treatment.inference for dose in self._applied.plan):
            self._before_steps(register_optimizer_step_pre_hook(self._training))
        done = [dose.treatment.name for dose in self._applied.subject.plan]
        left = [dose.treatment.name for dose in self._applied.plan if dose.treatment.name not in done]
        self._say(f"applied {', '.join(done) or 'nothing'}")
        if left:
            self._say(
                f"{', '.join(left)} holds a whole step, which only the program knows: gobrrr.apply(...).step(step)"
            )
