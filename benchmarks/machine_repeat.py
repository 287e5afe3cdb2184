"""Does the machine measure the same twice? Runs the whole measurement two times and compares every ceiling.

    python benchmarks/machine_repeat.py repeat.json [cpu|cuda]

A ceiling repeats if its two medians differ by no more than 2 % or by the spread that was printed with it.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

from gobrrr import schema
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.identity import identify
from gobrrr.machine.measure import measure
from gobrrr.machine.probes import selected

TOLERANCE = 0.02


def timed_run(device: str | None) -> tuple[Ceilings, float]:
    start_s = perf_counter()
    ceilings = measure(identify(device), selected(None), progress=tell)
    return ceilings, perf_counter() - start_s


def tell(number: int, total: int, what: str) -> None:
    sys.stderr.write(f"\r{number}/{total} {what:<24}")
    sys.stderr.flush()


def compared(key: str, first: Ceilings, second: Ceilings) -> dict[str, object]:
    a, b = first.value(key), second.value(key)
    spread = max(first.spread.get(key, 0.0), second.spread.get(key, 0.0))
    ratio = b / a if a and b is not None else None
    return {
        "key": key,
        "first": a,
        "second": b,
        "ratio": ratio,
        "spread": spread,
        "repeats": a == b or (ratio is not None and abs(ratio - 1) <= max(TOLERANCE, spread)),
    }


def main() -> None:
    path, device = Path(sys.argv[1]), (sys.argv[2] if len(sys.argv) > 2 else None)
    (first, first_s), (second, second_s) = timed_run(device), timed_run(device)
    rows = [compared(key, first, second) for key in dict.fromkeys([*first.spread, *second.spread])]
    print(f"\n{first.device}: {first_s:.1f} s and {second_s:.1f} s")
    print(f"{'ceiling':<40} {'first':>11} {'second':>11} {'ratio':>7} {'spread':>7}")
    for row in rows:
        values = (f"{row[name]:11.4g}" if row[name] is not None else f"{'?':>11}" for name in ("first", "second"))
        ratio = f"{row['ratio']:7.3f}" if row["ratio"] is not None else f"{'?':>7}"
        print(f"{row['key']:<40} {' '.join(values)} {ratio} {row['spread']:6.1%} {'' if row['repeats'] else 'DIFFERS'}")
    repeated = sum(bool(row["repeats"]) for row in rows)
    print(f"{repeated} of {len(rows)} repeat within max({TOLERANCE:.0%}, spread)")
    for run in (first, second):
        for probe, reason in run.unmeasured.items():
            print(f"not measured: {probe}: {reason}")
        for doubt in run.doubts:
            print(f"doubt: {doubt.what}; {doubt.remedy}")
    runs = [schema.document_data(run) for run in (first, second)]
    path.write_text(json.dumps({"seconds": [first_s, second_s], "rows": rows, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
