"""What does `gobrrr --help` cost over the least a click program can cost?

    python benchmarks/help_time.py benchmarks/results/help_time.json

Both are started as a shell starts them, one after the other, so that each pair shares the machine's mood.
The bar is 1.5 times `python -c "import click"`.
"""

import argparse
import os
import platform
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gobrrr import schema, units
from gobrrr.stats import Sample, compare

BAR = 1.5
HELP = (str(Path(sysconfig.get_path("scripts")) / "gobrrr"), "--help")
CLICK = (sys.executable, "-c", "import click")


@dataclass(frozen=True, slots=True)
class HelpTime:
    SCHEMA: ClassVar[str] = "help_time"
    VERSION: ClassVar[int] = 1

    machine: str
    ratio: float
    ratio_low: float
    ratio_high: float
    bar: float
    help_s: tuple[float, ...]
    click_s: tuple[float, ...]


def wall_s(command: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 (our own two commands)
    return time.perf_counter() - start


def measured(pairs: int) -> HelpTime:
    wall_s(HELP), wall_s(CLICK)  # compiles the bytecode and warms the disk cache
    times = [(wall_s(HELP), wall_s(CLICK)) for _ in range(pairs)]
    help_s, click_s = (tuple(column) for column in zip(*times, strict=True))
    comparison = compare(help_s, click_s)
    return HelpTime(
        machine=machine(),
        ratio=comparison.speedup,
        ratio_low=comparison.interval.low,
        ratio_high=comparison.interval.high,
        bar=BAR,
        help_s=help_s,
        click_s=click_s,
    )


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.processor() or platform.machine())
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def sentence(result: HelpTime) -> str:
    sides = (Sample(result.help_s), Sample(result.click_s))
    help_s, click_s = (units.seconds(side.median, units.digits_for(side.spread)) for side in sides)
    return (
        f"gobrrr --help takes {units.times(result.ratio)} "
        f"({units.times(result.ratio_low)} to {units.times(result.ratio_high)}, bar {units.times(BAR, 2)}) "
        f'of python -c "import click": {help_s} against {click_s}, '
        f"{len(result.help_s)} pairs on {result.machine}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("json", type=Path, help="where to write the result")
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    result = measured(options.pairs)
    schema.write(result, options.json)
    print(sentence(result))


if __name__ == "__main__":
    main()
