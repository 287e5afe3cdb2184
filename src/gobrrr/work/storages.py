"""The lives of storages: who is who, how large, from when to when.

A storage's Python object lives exactly as long as the storage, so a weak reference to it tells when the memory is
given back, on real, meta and fake tensors alike, and without keeping anything alive.
"""

import weakref
from dataclasses import dataclass

import torch

from gobrrr.work.op import Phase


@dataclass(slots=True)
class Life:
    """From the op that made it (or before the first) to the op after which it was freed (or beyond the last)."""

    nbytes: int
    born: int
    phase: Phase
    module: str
    died: int | None = None


class Storages:
    """Numbers each storage it is shown and keeps its life."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.now = 0
        self._known: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}

    def number(self, tensor: torch.Tensor, phase: Phase, module: str, *, born: int) -> int:
        """This tensor's storage, numbered at first sight; `born` is 0 for what was there before the step."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if (known := self._known.get(key)) is not None:
            return known[0]
        number = len(self.lives)
        self.lives.append(Life(storage.nbytes(), born, phase, module))
        self._known[key] = (number, weakref.ref(storage, lambda _: self._freed(key, number)))
        return number

    def _freed(self, key: int, number: int) -> None:
        self.lives[number].died = self.now
        self._known.pop(key, None)

    def forget(self) -> None:
        """Stops watching; what lives on stays alive beyond the last op."""
        self._known.clear()
