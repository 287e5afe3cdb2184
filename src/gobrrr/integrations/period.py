"""Finding the step of a program from what it does: calls of a model, backward passes, optimizer steps. No torch here.

A step is the shortest period of these events. What passes between two steps and is not trained, such as an evaluation,
does not count where something is trained.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias


class Kind(IntEnum):
    """The later ones end a step where there are some of them."""

    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3


class Event(NamedTuple):
    kind: Kind
    number: int = 0
    """Which of the models or of the optimizers, in the order in which they appeared."""


LEAST_SHARE = 0.25
"""Of the most frequent shape of steps: with less none is usual, as where a cache grows, and all count as one."""

Word: TypeAlias = tuple[Event, ...]

REPEATS = 3
"""Of a period, before it is believed. A wrong belief, as after the first of many accumulated backward passes, ends with
the first event that contradicts it."""

NO_LONGER_TRAINED = 32
"""Calls of models in a row that are more than an evaluation on the way, while no step is known."""

MOST_HEARD = REPEATS * 256
"""Events that are looked back upon: gradients accumulated over two hundred batches and more."""


def period(events: Sequence[Event]) -> Word | None:
    """The shortest word that the events end with so many times, and that ends with the event that ends a step."""
    events = _trained(events)
    for length in range(1, len(events) // REPEATS + 1):
        if events[-1] != events[-1 - length]:
            continue
        word = tuple(events[-length:])
        if word[-1].kind is max(event.kind for event in word) and tuple(events[-REPEATS * length :]) == word * REPEATS:
            return word
    return None


def _trained(events: Sequence[Event]) -> Sequence[Event]:
    """Without the calls of models, as long as something is trained."""
    calls = next((place for place, event in enumerate(reversed(events)) if event.kind is not Kind.FORWARD), None)
    if calls is None:
        return events
    if calls >= NO_LONGER_TRAINED:
        return events[-calls:]
    return [event for event in events if event.kind is not Kind.FORWARD]


def overlap(word: Word, events: Sequence[Event]) -> int:
    """How many events at the end are the beginning of the word, and not all of it."""
    lengths = range(min(len(word) - 1, len(events)), 0, -1)
    return next((length for length in lengths if tuple(events[-length:]) == word[:length]), 0)


@dataclass(slots=True)
class Beat:
    """Follows a program by its events, from the first that repeat to the last."""

    step_by: Kind | None = None
    """Every event of this kind ends a step, whatever the period."""
    word: Word | None = None
    heard: list[Event] = field(default_factory=list)
    _place: int = 0
    _whole: bool = True
    """Since the last step ended, all events were as expected."""

    def hear(self, event: Event) -> "Heard":
        if self.step_by is not None:
            event = Event(event.kind)
            if event.kind is not self.step_by:
                return Heard.NOTHING
        self.heard.append(event)
        if len(self.heard) > 2 * MOST_HEARD:
            del self.heard[:-MOST_HEARD]
        if self.word is None:
            return self._looked()
        if event.kind is Kind.FORWARD and self.word[-1].kind is not Kind.FORWARD:
            return Heard.NOTHING
        return self._followed(self.word, event)

    def _looked(self) -> "Heard":
        self.word, self._place, self._whole = period(self.heard), 0, True
        return Heard.NOTHING if self.word is None else Heard.FOUND

    def _followed(self, word: Word, event: Event) -> "Heard":
        if event == word[self._place]:
            self._place += 1
        else:
            self._whole, self._place = False, overlap(word, _trained(self.heard))
        if not self._whole and self._contradicted(word):
            return self._looked()
        if self._place < len(word):
            return Heard.NOTHING
        whole, self._place, self._whole = self._whole, 0, True
        return Heard.STEP if whole else Heard.SPOILED_STEP

    def _contradicted(self, word: Word) -> bool:
        other = period(self.heard)
        return other is not None and Counter(other) != Counter(word)


class Heard(IntEnum):
    """What an event means to who follows the steps."""

    NOTHING = 0
    FOUND = 1
    """There is a period now, or another one than before; with this event a step has ended."""
    STEP = 2
    SPOILED_STEP = 3
    """It has ended too, but something else happened in it, as when a scaler skips its optimizer's step."""


@dataclass(slots=True)
class Shapes:
    """The signatures of steps: what their models were called with."""

    number: Counter[Hashable] = field(default_factory=Counter)

    def usual(self) -> Hashable | None:
        """The most frequent one, if there is one to speak of."""
        ((shape, often),) = self.number.most_common(1) or [(None, 0)]
        return shape if often >= LEAST_SHARE * self.number.total() else None

    def share(self, shape: Hashable) -> float:
        return self.number[shape] / max(1, self.number.total())
