"""A prescription applied to a program that knows nothing of it: as soon as it calls the model that it is for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gobrrr.errors import GobrrrError
from gobrrr.integrations.imports import when_imported
from gobrrr.treat.outcome import Prescription

if TYPE_CHECKING:
    from gobrrr.treat.prescription import Applied

Say = Callable[[str], None]


@contextmanager
def applying(prescription: Prescription, say: Say) -> Iterator[None]:
    """While the body runs; afterwards the program's objects stay as they are treated."""
    found = _Applying(prescription, say)
    with when_imported("torch", found.begin):
        try:
            yield
        finally:
            found.end()


class _Applying:
    """Listens until the model has been called, and its optimizer has made a step if something is for that."""

    def __init__(self, prescription: Prescription, say: Say) -> None:
        self._prescription, self._say = prescription, say
        self._hooks = ExitStack()
        self._model: Any = None
        self._applied: Applied | None = None
        self._refused = False

    def begin(self) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._hooks.callback(register_module_forward_pre_hook(self._called).remove)
        self._hooks.callback(register_optimizer_step_pre_hook(self._stepping).remove)

    def end(self) -> None:
        self._hooks.close()
        if self._applied is None and not self._refused:
            missed = (
                "called the model that the prescription is for"
                if self._model is None
                else "made a step of an optimizer"
            )
            self._say(f"the program never {missed}: nothing was applied")

    def _called(self, module: Any, _args: Any) -> None:
        """The first call of all may be the model's, or that of a part: the fingerprint tells."""
        from gobrrr.treat.prescription import fingerprint_of

        if self._model is None and fingerprint_of({"model": module}) == self._prescription.model:
            self._model = module
            if not any(dose.treatment == "fused-optimizer" for dose in self._prescription.doses):
                self._apply(None)

    def _stepping(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._model is not None and self._applied is None:
            self._apply(optimizer)

    def _apply(self, optimizer: Any) -> None:
        from gobrrr.treat.prescription import apply

        self._hooks.close()  # before anything is compiled: a hook on all modules would be compiled too
        try:
            self._applied = apply(self._prescription, self._model, optimizer)
        except GobrrrError as error:
            self._refused = True
            self._say(f"{error}; the program runs on untreated")
            return
        done = [dose.treatment.name for dose in self._applied.subject.plan]
        left = [dose.treatment.name for dose in self._applied.plan if dose.treatment.name not in done]
        self._say(f"applied {', '.join(done) or 'nothing'}")
        if left:
            self._say(
                f"{', '.join(left)} holds a whole step, which only the program knows: gobrrr.apply(...).step(step)"
            )
