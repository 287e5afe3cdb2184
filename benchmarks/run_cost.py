"""What `gobrrr run` leaves behind: step times of one program before it is attended and after, in the same process.

    python benchmarks/run_cost.py [--pairs 10] [--windows 15] [--device cpu]

After the examined steps nothing of gobrrr is left in the process, so after over before should be what it is in a
process that was left alone, which every attended one is paired with: two processes differ by more than we could cost,
and one process drifts. While they are examined a step pays for its boundary, the recordings and the counting; that is
shown as seconds in all.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from gobrrr.integrations.attendant import Attendant, attending
from gobrrr.stats import Sample

WINDOW_STEPS = 30


def made_step(device: str) -> Callable[[], None]:
    """Of a model so small that the host limits it: what is left behind would show."""
    width = 128 if device == "cpu" else 1024
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU()))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)  # or the numbers shrink and slow down
    x = torch.randn(64, width, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def windows(step: Callable[[], None], device: str, number: int) -> list[float]:
    """On a CPU one thread's own time: other processes want the machine too."""
    now = time.process_time if device == "cpu" else time.perf_counter
    taken = []
    for _ in range(number):
        began = now()
        for _ in range(WINDOW_STEPS):
            step()
        if device != "cpu":
            torch.accelerator.synchronize()
        taken.append((now() - began) / WINDOW_STEPS)
    return taken


def measured(device: str, number: int, *, attended: bool) -> None:
    torch.set_num_threads(1)
    step, reported = made_step(device), list[object]()
    windows(step, device, 3)
    before = windows(step, device, number)
    began = time.perf_counter()
    if attended:
        with attending(Attendant("a loop", reported.append, lambda _: None)):
            while not reported:
                step()
    waited_s = time.perf_counter() - began
    windows(step, device, 3)
    after = windows(step, device, number)
    ratio = min(after) / min(before)  # of the windows that were disturbed least
    print(json.dumps({"ratio": ratio, "waited_s": waited_s, "step_s": min(before)}))


def process(*args: str) -> dict[str, float]:
    ran = subprocess.run([sys.executable, __file__, *args], check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--windows", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--measure", choices=("attended", "alone"), help="one process of a pair")
    asked = parser.parse_args()
    if asked.measure:
        measured(asked.device, asked.windows, attended=asked.measure == "attended")
        return
    ratios, waited = [], []
    for pair in range(asked.pairs):
        order = ("attended", "alone") if pair % 2 else ("alone", "attended")
        options = ("--windows", str(asked.windows), "--device", asked.device)
        found = {which: process("--measure", which, *options) for which in order}
        ratios.append(found["attended"]["ratio"] / found["alone"]["ratio"])
        waited.append(found["attended"]["waited_s"])
        print(
            f"step {found['attended']['step_s'] * 1e6:7.1f} µs, after over before {found['attended']['ratio']:.3f}; "
            f"left alone {found['alone']['ratio']:.3f}: ratio {ratios[-1]:.3f}",
            flush=True,
        )
    interval = Sample(tuple(ratios)).interval()
    print(
        f"step time after the examination: {median(ratios):.3f} of before ({interval.low:.3f} to {interval.high:.3f})"
    )
    print(f"the examination itself took {median(waited):.1f} s")


if __name__ == "__main__":
    main()
