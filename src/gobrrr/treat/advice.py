"""Advice: what a treated step still loses time by that no treatment changes, because it is the author's to change."""

from collections.abc import Iterator, Mapping

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam
from gobrrr.treat.backends import AttentionShape, attention_shapes
from gobrrr.treat.outcome import Advice
from gobrrr.treat.subject import Subject

THE_AUTHORS = (
    "B102",  # sync points
    "B104",  # loops in Python
    "B105",  # data loading
    "B106",  # graph breaks
    "B107",  # recompiles
    "B108",  # the allocator
    "B109",  # blocking copies
    "B206",  # strided access
    "B305",  # padding
    "B602",  # a larger batch
)
"""Findings whose remedy is in the program, the data or the environment."""


def advised(exam: Exam, subject: Subject) -> tuple[Advice, ...]:
    """Of the step as it is treated now."""
    return (*left_to_the_author(exam), *idle_masks(attention_shapes(subject)))


def left_to_the_author(exam: Exam) -> Iterator[Advice]:
    """The most at stake first, and nothing that is known to gain nothing."""
    for one in diagnose(exam).findings:
        if one.code in THE_AUTHORS and one.seconds_at_stake != 0:
            yield Advice(one.title, one.code, one.seconds_at_stake, one.evidence, one.treatment)


def idle_masks(calls: Mapping[AttentionShape, int]) -> Iterator[Advice]:
    """Masks that say no more than a name: with a dense one there is no flash attention."""
    for shape, count in calls.items():
        if shape.mask_means is not None:
            size = " × ".join(map(str, shape.mask or ()))
            yield Advice(
                "a dense mask that says nothing",
                None,
                None,
                (f"attention was called {count} times with a mask of {size} that {shape.mask_means}, on these inputs",),
                "where that holds for all inputs, pass attn_mask=None, or is_causal=True",
            )
