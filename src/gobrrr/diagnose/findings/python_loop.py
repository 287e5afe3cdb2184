"""B104: one line that asks for the same small op many times, each without waiting for the last: a Python loop."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.flow import Flow
from gobrrr.units import seconds
from gobrrr.work.op import Op, Phase
from gobrrr.work.registry import canonical

LEAST = 8
"""Rounds. Queries, keys and values are three, the gates of a cell four; heads, samples and experts are more."""

SHORT = 4
"""Times what the host pays for an op: one that takes longer fills the device by itself, and a loop of those costs
little."""

NOTABLE = 0.02
"""Of the step, that asking again and again takes at the least: as much as can be told from noise."""


@dataclass(frozen=True, slots=True)
class Loop:
    source: str
    module: str
    rounds: int
    names: tuple[str, ...]


@finding(
    "B104",
    "Python loop over small tensors",
    explanation=(
        "This line runs the same op on the same shapes again and again, and no round needs what another one made: "
        "one op on a stacked tensor would do them all. At stake is the host's time for all rounds but one, forward and "
        "backward, and the least that a kernel takes; B101 and B103 count the same seconds."
    ),
    reads=(
        "at least 8 calls of one op from one line of one module with equal shapes, no call depending on another, each "
        "shorter than four times what asking for it takes, together 2 % of the step to ask for"
    ),
    treatment="one op on a stacked tensor: einsum, bmm, torch.stack, torch.vmap, grouped products for experts",
    fix="""
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k)  # was: [q[:, h] @ k[:, h].mT for h in range(heads)]
    losses = torch.vmap(loss)(samples)  # was: [loss(sample) for sample in samples]
    """,
    unless="Rounds of different shapes have to be padded first; that may cost more than the loop.",
)
def python_loop(case: Case) -> Stake | None:
    program = case.exam.program
    if program is None or case.flow is None or case.exam.dispatched:
        return None
    found = list(loops(program.ops, case.flow, _seconds_by_op(case.kernels), SHORT * case.op_s))
    repeated = [(loop, _of_loop(loop, case.kernels)) for loop in found]
    host_s = sum(_asked(loop, program.ops) * (1 - 1 / loop.rounds) for loop in found) * case.op_s
    if host_s < NOTABLE * case.exam.step_s:
        return None
    device_s = sum(_latency_s(some) * (1 - 1 / loop.rounds) for loop, some in repeated)
    return case.saving(device_s, (_line(loop, some) for loop, some in repeated), host_s=host_s)


def loops(ops: Sequence[Op], flow: Flow, took_s: dict[int, float], short_s: float) -> Iterator[Loop]:
    """One for each line of a module; its rounds are those of the op that is called most."""
    lines: defaultdict[tuple[str, str], list[list[int]]] = defaultdict(list)
    for calls in _alike(ops).values():
        if len(calls) >= LEAST and _are_short(calls, took_s, short_s) and _are_independent(calls, flow):
            first = ops[calls[0]]
            lines[first.source or "", first.module].append(calls)
    for (source, module), some in lines.items():
        names = dict.fromkeys(canonical(ops[calls[0]].name) for calls in some)
        yield Loop(source, module, max(len(calls) for calls in some), tuple(names))


def _alike(ops: Sequence[Op]) -> dict[object, list[int]]:
    calls: defaultdict[object, list[int]] = defaultdict(list)
    for number, op in enumerate(ops):
        if op.launches and op.source is not None and op.phase in (Phase.FORWARD, Phase.OTHER):
            calls[op.name, op.source, op.module, tuple(ref.shape for ref in op.inputs)].append(number)
    return calls


def _are_short(calls: Sequence[int], took_s: dict[int, float], short_s: float) -> bool:
    return sum(took_s.get(call, 0.0) for call in calls) < short_s * len(calls)


def _are_independent(calls: Sequence[int], flow: Flow) -> bool:
    """Whether none reads what came of another: layers and time steps do, heads and samples do not."""
    after = set[int]()
    members = set(calls)
    for op in range(calls[0], calls[-1] + 1):
        depends = any(value.maker in after for value in flow.values_read(op))
        if depends and op in members:
            return False
        if depends or op in members:
            after.add(op)
    return True


def _seconds_by_op(kernels: Iterable[Attributed]) -> dict[int, float]:
    took_s: defaultdict[int, float] = defaultdict(float)
    for one in kernels:
        if one.kernel.fused_from is not None and len(one.kernel.fused_from) == 1:
            took_s[one.kernel.fused_from[0]] += one.seconds
    return took_s


def _of_loop(loop: Loop, kernels: Iterable[Attributed]) -> list[Attributed]:
    """All that its line asks for, gradients included."""
    return [
        one for one in kernels if one.op is not None and one.op.source == loop.source and one.op.module == loop.module
    ]


def _asked(loop: Loop, ops: Iterable[Op]) -> int:
    """All calls of its line, views and gradients included."""
    return sum(op.source == loop.source and op.module == loop.module for op in ops)


def _latency_s(kernels: Iterable[Attributed]) -> float:
    return sum(one.parts.latency for one in kernels if one.parts is not None)


def _line(loop: Loop, kernels: Sequence[Attributed]) -> str:
    took_s = sum(one.seconds for one in kernels)
    return f"{loop.source}: {', '.join(loop.names)} {loop.rounds} times, {len(kernels)} kernels, {seconds(took_s)}"
