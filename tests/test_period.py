"""Finding the step from events alone: made-up programs with a known period, and noise in front of it."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gobrrr.integrations.period import REPEATS, Beat, Event, Heard, Kind, Shapes, overlap, period

F, B, O, P = Event(Kind.FORWARD), Event(Kind.BACKWARD), Event(Kind.OPTIMIZER), Event(Kind.OPTIMIZER, 1)  # noqa: E741
LETTERS = {"F": F, "G": Event(Kind.FORWARD, 1), "B": B, "O": O, "P": P}


def spelled(text: str) -> list[Event]:
    return [LETTERS[letter] for letter in text]


def steps(text: str, step_by: Kind | None = None) -> list[Heard]:
    beat = Beat(step_by)
    return [beat.hear(event) for event in spelled(text)]


def word(text: str) -> str:
    beat = Beat()
    for event in spelled(text):
        beat.hear(event)
    names = {event: letter for letter, event in LETTERS.items()}
    return "".join(names[event] for event in beat.word or ())


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("FBO" * 3, "BO"),
        ("FBFBFBFBO" * 3, "BBBBO"),
        ("FFBOFBP" * 3, "BOBP"),
        ("FFBOP" * 3, "BOP"),
        ("FBOFBOFBOFBOFBOFBP" * 3, "BOBOBOBOBOBP"),
        ("F" * 3, "F"),
        ("FG" * 3, "FG"),
        ("FB" * 3, "B"),
        ("O" * 3, "O"),
        ("FF" + "FBO" * 3, "BO"),
        ("FBFBFB" + "FBO" * 3, "BO"),
        ("FBO" * 2, ""),
        ("FBO" * 3 + "FB" + "FBO" * 3, "BO"),
        ("F" * 9 + "FBO" * 3, "BO"),
        ("FBO" * 3 + "F" * 20 + "FBO", "BO"),
        ("FBO" * 3 + "FBFBO" * 3, "BBO"),
    ],
    ids=[
        "training",
        "accumulation",
        "two optimizers in turn",
        "two optimizers together",
        "five critics",
        "inference",
        "two models",
        "no optimizer",
        "closures",
        "sanity check first",
        "scaler skips at first",
        "too few",
        "scaler skips once",
        "evaluation first",
        "evaluation between",
        "another step later",
    ],
)
def test_the_step_of_common_programs(program, found):
    assert word(program) == found


events = st.sampled_from(sorted(LETTERS)).map(LETTERS.get)
words = st.lists(events, min_size=1, max_size=8).map(tuple)


@given(st.lists(events, max_size=20), words)
def test_whatever_repeats_for_long_is_found_whatever_was_before(noise, repeated):
    """What is found makes it up, maybe as one of several equal parts. Who trained is not believed to stop."""
    trained = tuple(event for event in repeated if event.kind is not Kind.FORWARD) or repeated
    beat = Beat()
    for event in noise:
        beat.hear(event)
    assume(beat.word is None)
    for event in repeated * 40:
        beat.hear(event)
    assert Counter(trained) == Counter(beat.word * (len(trained) // len(beat.word)))


@given(st.lists(events, max_size=30))
def test_what_is_found_stands_there_three_times(heard):
    found = period(heard)
    if found is not None:
        trained = [event for event in heard if event.kind is not Kind.FORWARD] or heard  # fewer than end a training
        assert tuple(trained[-REPEATS * len(found) :]) == found * REPEATS


@given(words, st.lists(events, max_size=10))
def test_the_overlap_is_the_longest_beginning_that_the_events_end_with(repeated, heard):
    size = overlap(repeated, heard)
    assert size < len(repeated)
    assert tuple(heard[len(heard) - size :]) == repeated[:size]
    longer = range(size + 1, min(len(repeated), len(heard) + 1))
    assert not any(tuple(heard[-more:]) == repeated[:more] for more in longer)


def test_each_step_is_told_once_where_it_ends():
    assert steps("FBO" * 5) == [*[Heard.NOTHING] * 8, Heard.FOUND, *[Heard.NOTHING, Heard.NOTHING, Heard.STEP] * 2]


def test_a_step_in_which_the_scaler_skipped_is_spoiled_and_the_next_is_not():
    assert steps("FBO" * 3 + "FB" + "FBO" * 2)[9:] == [
        *[Heard.NOTHING] * 4,
        Heard.SPOILED_STEP,
        Heard.NOTHING,
        Heard.NOTHING,
        Heard.STEP,
    ]


def test_what_contradicts_a_step_makes_another():
    heard = steps("FB" * 3 + "FBFBFBO" * 3)
    assert heard.count(Heard.FOUND) == 2
    assert heard[-1] is Heard.FOUND


@pytest.mark.parametrize(("kind", "number"), [(Kind.FORWARD, 12), (Kind.BACKWARD, 12), (Kind.OPTIMIZER, 6)])
def test_step_by_makes_every_event_of_a_kind_a_step(kind, number):
    heard = steps("FBFBO" * 3 + "FBFBP" * 3, kind)
    assert len(heard) - heard.count(Heard.NOTHING) == number - REPEATS + 1


def test_the_usual_shape_is_the_most_frequent_unless_none_is():
    assert Shapes(Counter({"a": 3, "b": 2})).usual() == "a"
    assert Shapes(Counter(range(9))).usual() is None
    assert Shapes(Counter({"a": 3, "b": 1})).share("a") == 0.75
    assert Shapes().usual() is None
