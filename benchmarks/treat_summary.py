"""What the lines of treat.py and treat_together.py come to.

    python benchmarks/treat_summary.py benchmarks/results/cpu2/treat.jsonl

For each workload the treated step beside torch.compile's modes; over all of them the geometric mean over the best mode,
and how far predicted gains are from measured ones: seconds, summed over all that was tried, and directions, of those
whose interval does not hold 1.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Gain:
    """Of one treatment that was raced."""

    workload: str
    treatment: str
    before_s: float
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def predicted_s(self) -> float:
        return self.before_s * (1 - 1 / self.predicted)

    @property
    def measured_s(self) -> float:
        return self.before_s * (1 - 1 / self.measured)

    @property
    def is_open(self) -> bool:
        """The interval holds no change."""
        return self.low <= 1 <= self.high

    @property
    def is_right(self) -> bool:
        """As predicted, it is faster, or it is not."""
        return (self.predicted > 1) == (self.measured > 1)


def gains(row: dict[str, Any]) -> Iterator[Gain]:
    for one in (*row["treated"]["kept"], *row["treated"]["rejected"]):
        if one["measured"] is not None and one.get("step_s") is not None:
            ratios = {key: one[key] for key in ("treatment", "predicted", "measured", "low", "high")}
            yield Gain(row["workload"], before_s=one["step_s"] * one["measured"], **ratios)


def best_mode(row: dict[str, Any]) -> dict[str, Any] | None:
    return min((one for one in row["peers"] if "step_s" in one), key=lambda one: one["step_s"], default=None)


def over(best: dict[str, Any], found: dict[str, Any]) -> str:
    """Both intervals at their widest."""
    ratio = best["step_s"] / found["treated_s"]
    own = found.get("treated_low_s"), found.get("treated_high_s")
    low, high = (None, None) if None in own else (best["low_s"] / own[1], best["high_s"] / own[0])
    return f", {ratio:.3f}x{half_width(low, high, ratio)} the best mode"


def half_width(low: float | None, high: float | None, middle: float) -> str:
    """Nothing where nobody kept it."""
    return "" if low is None or high is None else f" ± {50 * (high - low) / middle:.1f} %"


def line(row: dict[str, Any]) -> str:
    found, best = row["treated"], best_mode(row)
    half = half_width(found["speedup_low"], found["speedup_high"], found["speedup"])
    own = half_width(found.get("treated_low_s"), found.get("treated_high_s"), found["treated_s"])
    modes = "".join(f", {one['mode']} {one['step_s'] * 1e3:.4g} ms" for one in row["peers"] if "step_s" in one)
    return (
        f"{row['workload']}: {found['baseline_s'] * 1e3:.4g} -> {found['treated_s'] * 1e3:.4g} ms{own}, "
        f"{found['speedup']:.3f}x{half} in {found['spent_s']:.0f} s{over(best, found) if best else ''}{modes}"
    )


def geometric_mean(ratios: Iterable[float]) -> float:
    logs = [log(one) for one in ratios]
    return exp(sum(logs) / len(logs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path, help="files of lines")
    written = [json.loads(text) for path in parser.parse_args().results for text in path.read_text().splitlines()]
    rows = [row for row in written if row["treated"] is not None]
    for row in rows:
        print(line(row))
    compared = [best["step_s"] / row["treated"]["treated_s"] for row in rows if (best := best_mode(row)) is not None]
    if compared:
        print(f"over the best mode, geometric mean of {len(compared)}: {geometric_mean(compared):.3f}x")
    found = [gain for row in rows for gain in gains(row)]
    for gain in found:
        mark = "" if gain.is_right else "  open" if gain.is_open else "  wrong"
        print(
            f"  {gain.workload} {gain.treatment}: predicted {gain.predicted:.3f}x, measured {gain.measured:.3f}x "
            f"({gain.low:.3f} to {gain.high:.3f}){mark}"
        )
    if found:
        apart_s = sum(abs(gain.predicted_s - gain.measured_s) for gain in found)
        total_s = sum(abs(gain.measured_s) for gain in found)
        decided = [gain for gain in found if not gain.is_open]
        right = sum(gain.is_right for gain in decided)
        print(f"predicted and measured gains are {apart_s * 1e3:.4g} ms apart, of {total_s * 1e3:.4g} ms measured")
        print(f"direction right: {right} of {len(decided)} decided, {len(found) - len(decided)} open")


if __name__ == "__main__":
    main()
