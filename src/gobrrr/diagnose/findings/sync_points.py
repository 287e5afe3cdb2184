"""B102: lines at which the host stops until the device has finished."""

from collections import defaultdict
from collections.abc import Sequence

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.timing.kernel import Sync
from gobrrr.units import seconds

SHOWN = 8
"""Lines that fit on a screen beside other findings; the rest is counted."""


@finding(
    "B102",
    "sync points",
    explanation=(
        "At these lines the host waits until the device has done all that was asked of it, and then the device waits "
        "for the host to ask again. Without them the two would work side by side, and the slower one would be the "
        "step."
    ),
    reads="calls of a step in which the host waited for the device, with the lines that made them",
    treatment="keep losses and metrics on the device and read them every hundred steps; non_blocking=True for copies",
    fix="""
    total = torch.zeros((), device=device)
    for number, batch in enumerate(loader):
        total += training_step(batch).detach()  # was: total += loss.item()
        if number % 100 == 99:
            print(total.item() / 100)
            total.zero_()
    """,
    unless="One wait a step costs little where the device limits and the host is far ahead: the stake says so.",
)
def sync_points(case: Case) -> Stake | None:
    syncs = case.exam.syncs
    if not syncs:
        return None
    return Stake(_stake_s(case, sum(sync.seconds for sync in syncs)), 0.0, _lines(syncs))


def _stake_s(case: Case, synced_s: float) -> float | None:
    """The step less what it would be with both sides at work all the time; never more than the syncs took.

    `host_s` leaves out the waiting and holds what a sync costs by itself; that part goes too. Sides that already
    overlap, with a step as long as the slower of them, have nothing else to gain.
    """
    host_s, device_s = case.sides.host_s, case.sides.device_s
    if host_s is None or case.sides.serial:
        return None
    waited_s = max(0.0, case.exam.step_s - host_s)
    own_s = max(0.0, synced_s - waited_s)
    return min(synced_s, max(0.0, case.exam.step_s - max(host_s - own_s, device_s)))


def _lines(syncs: Sequence[Sync]) -> tuple[str, ...]:
    """Where, how often and for how long; the longest first."""
    lines: defaultdict[str, list[Sync]] = defaultdict(list)
    for sync in syncs:
        lines[sync.source or "line not known"].append(sync)
    longest = sorted(lines.items(), key=lambda line: -sum(sync.seconds for sync in line[1]))
    more = len(longest) - SHOWN
    shown = tuple(_line(source, some) for source, some in longest[:SHOWN])
    return shown if more <= 0 else (*shown, f"and {more} more line{'s' if more > 1 else ''}")


def _line(source: str, syncs: Sequence[Sync]) -> str:
    calls = ", ".join(dict.fromkeys(sync.call for sync in syncs))
    often = "" if len(syncs) == 1 else f" {len(syncs)} times"
    return f"{source}: {calls}{often}, {seconds(sum(sync.seconds for sync in syncs))}"
