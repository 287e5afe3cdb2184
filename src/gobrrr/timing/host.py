"""What the host needs for a step, and where it waits. No torch here."""

from collections.abc import Sequence
from statistics import median

from gobrrr.timing.timeline import Span, Timeline, asked_for_within, merged, overlap_s

_WAITING = ("Synchronize",)
_COPYING = ("MemcpyWithStream",)
"""In the name of the call by which torch copies and waits at once on ROCm."""
_LAUNCHING = ("Launch",)
_ASKING = (*_LAUNCHING, "cudaMemcpy", "hipMemcpy")
"""In the names of calls that ask for something, and may wait first; a copy does where its other end is pageable."""

FREE_LAUNCH_S = 1e-5
"""A launch into a queue with room takes 2 to 5 µs, recorded up to twice that. Where the median is longer, the queue
was full throughout."""

USUAL = 3
"""A call that takes more than so many times the usual launch waited: the queue was full, or the copy blocks."""


def host_share(recorded: Timeline, steps: int) -> float | None:
    """Of a step's time, what the host needs of it: a host that was slower or quicker while it was recorded than while
    the step was timed, or that the recording slowed, was so for all of the step.
    """
    needed_s = host_s(recorded, steps)
    return needed_s / period_s(recorded, steps) if needed_s is not None else None


def period_s(recorded: Timeline, steps: int) -> float:
    """What a step took while it was recorded, by the host's calls or by the device, whichever was the slower.

    Both begin with what the first step asks for: what came before, such as a wait for data, comes again in the others.
    """
    return max(_wall_s(steps_calls(recorded)), _wall_s(asked_for_within(recorded).device)) / steps


def _wall_s(spans: Sequence[Span]) -> float:
    return max((span.end_s for span in spans), default=0.0) - min((span.start_s for span in spans), default=0.0)


def host_s(recorded: Timeline, steps: int) -> float | None:
    """Wall time of the calls of a step, less what they waited while the device ran.

    The last wait belongs to the recording and not to the steps. What a wait costs beyond the device's work stays in.
    """
    calls = steps_calls(recorded)
    if not calls:
        return None
    device = merged(recorded.device)
    usual_s = min(FREE_LAUNCH_S, median([call.seconds for call in calls if _is(call, _LAUNCHING)] or [0.0]))
    waited_s = sum(_waited_s(call, device, usual_s) for call in calls)
    return max(0.0, _wall_s(calls) - waited_s) / steps  # threads may wait side by side


def steps_calls(recorded: Timeline) -> tuple[Span, ...]:
    """The runtime calls, but for the waits for the whole device that end the recording."""
    own = [place for place, call in enumerate(recorded.runtime) if not _is(call, ("DeviceSynchronize",))]
    return recorded.runtime[: own[-1] + 1] if own else ()


def waits(recorded: Timeline, steps: int) -> tuple[Span, ...]:
    """Calls of a middle step that waited for the device: from its first launch to that of the next step.

    So the waits that end the recording are left out, and one before a step's first launch comes last.
    """
    device = {span.correlation for span in recorded.device}
    launches = [call.start_s for call in recorded.runtime if call.correlation in device]
    a_step = len(launches) // steps
    if not a_step:
        return ()
    start_s, end_s = launches[a_step * (steps // 2)], launches[a_step * (steps // 2 + 1)]
    return tuple(
        call for call in recorded.runtime if start_s <= call.start_s < end_s and _is(call, (*_WAITING, *_COPYING))
    )


def _waited_s(call: Span, device: list[tuple[float, float]], usual_s: float) -> float:
    if _is(call, _WAITING):
        return overlap_s(call.start_s, call.end_s, device)
    if _is(call, _ASKING) and call.seconds > USUAL * usual_s:
        return min(call.seconds - usual_s, overlap_s(call.start_s, call.end_s, device))
    return 0.0


def _is(call: Span, words: tuple[str, ...]) -> bool:
    return any(word in call.name for word in words)
