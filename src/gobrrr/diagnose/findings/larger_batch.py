"""B602: a batch that could be larger at little cost."""

from gobrrr.diagnose.batch import batch_verdict
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import capacity, percent, times

ROOM = 0.8
"""Of the memory: up to here twice the batch surely fits."""

NEARLY_FREE = 1.5
"""Times as long for twice the batch, at most: three quarters of the time for each sample."""


@finding(
    "B602",
    "a larger batch would fit",
    explanation=(
        "Twice the batch was measured to take far less than twice the time, and there is memory for it. At stake is "
        "what the samples of this step would take less, half of a step with twice as many; the step itself gets "
        "longer."
    ),
    reads=(
        "the batch test: at most 1.5 times the time for twice the batch, whose peak would stay below 80 % of the memory"
    ),
    treatment="double the batch until the time doubles too; scale the learning rate with it, or accumulate less often",
    fix="""
    loader = DataLoader(data, batch_size=2 * batch_size)  # and half as many accumulation steps
    """,
    unless="Batch size is part of the method: a larger one may need more epochs. For latency it is no help at all.",
)
def larger_batch(case: Case) -> Stake | None:
    peak, memory, program = case.exam.peak_memory_bytes, case.exam.ceilings.memory_bytes, case.exam.program
    test = batch_verdict(case.exam, None)
    if test is None or test.ratio_high > NEARLY_FREE or peak is None or not memory or program is None:
        return None
    doubled = 2 * peak - min(peak, program.memory.resident_bytes)
    if doubled > ROOM * memory:
        return None
    saved_s = case.exam.step_s * (1 - test.ratio / 2)
    return Stake(
        saved_s,
        0.0,
        (
            (
                f"twice the batch takes {times(test.ratio)} the time: {percent(1 - test.ratio / 2, 0)} less for each "
                "sample"
            ),
            f"it would need about {capacity(doubled)} of {capacity(memory)}",
        ),
    )
