"""A rehearsal: a plan tried in a process of its own first, because a failed capture leaves a process unusable.

python -m gobrrr.treat.rehearsal '{"target": "FILE.py:NAME", "doses": [["whole-step-graph", ["step"]]]}'
"""

import json
import subprocess
import sys
from pathlib import Path

from gobrrr.treat.treatment import Plan
from gobrrr.treat.trial import Rehearse, said_by

STEPS = 3
LONGEST_S = 600


def rehearsing(target: str, most_s: float = LONGEST_S) -> Rehearse:
    """Of a workload that another process can make too."""

    def rehearse(plan: Plan) -> str | None:
        doses = [[dose.treatment.name, list(dose.sites)] for dose in plan]
        command = [sys.executable, "-m", __spec__.name, json.dumps({"target": target, "doses": doses})]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            return f"not done after {most_s:.0f} s"
        if done.returncode == 0:
            return None
        said = done.stderr.strip().splitlines()
        return said[-1] if said else f"ended with {done.returncode}"

    return rehearse


def main(request: str) -> str | None:
    """What went wrong."""
    from gobrrr.treat.compiling import patient_compiler
    from gobrrr.treat.prescription import doses_of
    from gobrrr.treat.subject import subject_of
    from gobrrr.workload import load_factory

    asked = json.loads(request)
    subject = subject_of(load_factory(asked["target"]))
    try:
        for _ in range(STEPS):
            subject.run()
        with patient_compiler():
            subject.become(doses_of((name, tuple(sites)) for name, sites in asked["doses"]))
            for _ in range(STEPS):
                subject.run()
            _finish(subject.device)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        return said_by(error)
    return None


def _finish(device: str) -> None:
    if device != "cpu":
        import torch

        torch.accelerator.synchronize(device)


def is_a_file(target: str) -> bool:
    file, colon, _ = target.rpartition(":")
    return bool(colon) and Path(file).is_file()


if __name__ == "__main__":
    answer = main(sys.argv[1])
    sys.exit(answer)
