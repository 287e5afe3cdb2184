"""The page of a step with very many ops: its size, when it is first painted, and how long a filter takes.

    python benchmarks/page_time.py RESULT.json [--ops 20000]

Made in Chromium, as the browser tests are. Every op is of a kind of its own, so that nothing is put together.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam, Quality
from gobrrr.machine.ceilings import Ceilings
from gobrrr.report.examined import Examined
from gobrrr.report.pages.step import render
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.program import Memory, Program
from gobrrr.work.work import Work

CHROMIUM = "/usr/bin/chromium"
REPEATS = 9
CEILINGS = Ceilings(
    device="a made-up card",
    kind="cuda",
    threads=8,
    measured_at="2026-01-01T00:00:00+00:00",
    matmul_flops_per_s={"bf16": 8e14, "fp32": 5e13},
    vector_flops_per_s={"fp32": 6e13},
    dram_bytes_per_s=4e12,
    cache_bytes_per_s=6e12,
    cache_bytes=50 << 20,
    shortest_kernel_class_s={"elementwise": 1e-6, "gemm": 2e-6},
)


def op(number: int) -> Op:
    """A product or an addition, of a size, a module and a line of its own."""
    side = 64 + number % 997
    ref = TensorRef(number, 0, (side, side), (side, 1), "bf16")
    product = number % 3 == 0
    return Op(
        name=f"aten::{'mm' if product else 'add'}_{number}",
        cls=OpClass.CONTRACTION if product else OpClass.ELEMENTWISE,
        phase=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)[number % 3],
        module=f"Net.stage{number % 40}.block{number % 7}",
        source=f"src/model/part{number % 200}.py:{number}",
        device="cuda:0",
        inputs=(ref, ref),
        outputs=(ref._replace(storage=number + 1),),
        counted_by=CountedBy.FORMULA,
        work=Work(
            matrix={"bf16": 2.0 * side**3} if product else {},
            flops_dense=2.0 * side**3 if product else 0.0,
            vector_flops=0.0 if product else side**2,
            bytes_read=4.0 * side**2,
            bytes_written=2.0 * side**2,
        ),
        launches=True,
    )


def exam(number: int) -> Exam:
    ops = tuple(map(op, range(number)))
    kernels = tuple(
        Kernel(one.name, place * 6e-6, 5e-6, KernelKind.COMPUTE, 7, place * 6e-6 - 2e-6, (place,), place)
        for place, one in enumerate(ops)
    )
    return Exam(
        target="made.py:up",
        made_at="2026-01-01T00:00:00+00:00",
        device="cuda:0",
        serial=False,
        ceilings=CEILINGS,
        ceilings_from="measured",
        window_step_s=(number * 6e-6,) * 10,
        steps=100,
        step_s_method="windows",
        step_profiled_s=None,
        host_s=number * 5e-6,
        kernels=kernels,
        program=Program(ops, Memory(0, 0, 0, {})),
        syncs=(),
        peak_memory_bytes=None,
        gpu_util_percent=None,
        quality=Quality(1.0, steady=True, growing=False),
    )


FILTER_MS = """async (text) => {
  const search = document.getElementById("search");
  const started = performance.now();
  search.value = text;
  search.dispatchEvent(new Event("input", { bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - started;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def timed(page_file: Path) -> dict[str, float]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        paints, ready = [], []
        for _ in range(REPEATS):
            page = browser.new_page()
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready] #roofline[data-drawn]", state="attached")
            paints.append(page.evaluate(PAINTED))
            ready.append(page.evaluate("performance.now()"))
            filters = [page.evaluate(FILTER_MS, text) for text in ("mm", "stage7", "", "add_19", "") * 3]
            page.close()
        browser.close()
    return {
        "first_paint_ms": statistics.median(paints),
        "drawn_ms": statistics.median(ready),
        "filter_ms": statistics.median(filters),
        "slowest_filter_ms": max(filters),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--ops", type=int, default=20_000)
    asked = parser.parse_args()
    made = exam(asked.ops)
    diagnosis = diagnose(made)
    started = time.perf_counter()
    html = render(Examined(made, diagnosis))
    rendered_s = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(html, encoding="utf-8")
        found = {"ops": asked.ops, "bytes": path.stat().st_size, "render_s": rendered_s, **timed(path)}
    text = json.dumps({name: round(value, 1) for name, value in found.items()}, indent=1)
    asked.result.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
