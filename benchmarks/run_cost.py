"""What `gobrrr run` costs: step times of one script under it and under plain Python, in turn, as ratios.

    python benchmarks/run_cost.py [--pairs 10] [--steps 300] [--device cpu]

On a CPU a step is one thread's own time: on a busy machine the scheduler favours whichever process is younger.
After the examined steps nothing of gobrrr is left in the process, so the ratio there should be 1 within its interval.
While they are examined a step pays for its boundary, the recordings and the counting; that is shown as seconds in all.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from gobrrr.stats import Sample

SCRIPT = """
import json, sys, time
import torch
from torch import nn
steps, device, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
width = 128 if device == "cpu" else 1024
layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)  # or the numbers shrink until each is slow
x = torch.randn(64, width, device=device)
wait = torch.accelerator.synchronize if device != "cpu" else lambda: None
attended = lambda: getattr(torch.autograd.backward, "__wrapped__", None) is not None
def step():
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
now = time.perf_counter if device != "cpu" else time.process_time
def timed(number):
    wait()
    began = now()
    for _ in range(number):
        step()
    wait()
    return (now() - began) / number
began = time.perf_counter()
timed(50)
while attended():
    timed(10)
waited = time.perf_counter() - began
json.dump({"waited_s": waited, "step_s": [timed(steps // 10) for _ in range(10)]}, open(file, "w"))
"""
GOBRRR = [sys.executable, "-c", "from gobrrr.cli import main; main()", "run"]


def measured(command: list[str], steps: int, device: str, folder: Path) -> tuple[float, float]:
    """Seconds until nothing of gobrrr is left, and of a step from then on."""
    script, found = folder / "script.py", folder / "found.json"
    script.write_text(SCRIPT)
    subprocess.run([*command, str(script), str(steps), device, str(found)], check=True, capture_output=True)  # noqa: S603
    data = json.loads(found.read_text())
    return data["waited_s"], min(data["step_s"])  # of the window that was disturbed least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    ratios, waited = [], []
    with tempfile.TemporaryDirectory() as name:
        for pair in range(asked.pairs):
            kinds = [[sys.executable], GOBRRR]
            order = kinds if pair % 2 else kinds[::-1]  # neither is always the one that finds the machine warm
            found = {len(kind): measured(kind, asked.steps, asked.device, Path(name)) for kind in order}
            (plain_waited_s, plain_s), (waited_s, under_s) = found[1], found[len(GOBRRR)]
            ratios.append(under_s / plain_s)
            waited.append(waited_s - plain_waited_s)
            print(f"plain {plain_s * 1e6:8.1f} µs  under gobrrr run {under_s * 1e6:8.1f} µs  ratio {ratios[-1]:.3f}")
    interval = Sample(tuple(ratios)).interval()
    print(f"step time after the examination: {median(ratios):.3f} of plain ({interval.low:.3f} to {interval.high:.3f})")
    print(f"the examination itself took {median(waited):.1f} s more than the steps it was given")


if __name__ == "__main__":
    main()
