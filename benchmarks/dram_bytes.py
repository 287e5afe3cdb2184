"""Counted bytes beside what the memory controllers saw: ops of a gigabyte and more under Nsight Compute.

    python benchmarks/dram_bytes.py benchmarks/results/dram_bytes.json

Needs a CUDA device, `ncu`, and leave to read the hardware counters. Each op runs once to warm up, so that the dirty
lines it finds in the cache are about as many as those it leaves; then once under the profiler, between two marker
kernels. Nothing is claimed of matrix products but that they move no less than counted: tiles re-read operands.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch
from torch.nn import functional

from gobrrr import schema, units
from gobrrr.work.counter import Counter

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
MARKER = "spin_kernel"
ROWS, COLUMNS = 1 << 16, 1 << 12  # one GiB of fp32, half of one in bf16

Call = Callable[[], Any]
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Row:
    op: str
    counted_read: float
    counted_written: float
    measured_read: float
    measured_written: float
    ratio: float
    """Counted over measured."""
    one_sided: bool
    kernels: int


@dataclass(frozen=True, slots=True)
class DramBytes:
    SCHEMA: ClassVar[str] = "dram_bytes"
    VERSION: ClassVar[int] = 1

    device: str
    torch: str
    rows: tuple[Row, ...]
    median_ratio: float
    """Of all but the one-sided."""


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def pointwise() -> dict[str, Call]:
    x, y, row = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS), normal(COLUMNS)
    mask = torch.rand(ROWS, COLUMNS, device="cuda") > 0.5
    return {
        "add": lambda: x + y,
        "add in place": lambda: x.add_(y),
        "mul by a row": lambda: x * row,
        "cos": x.cos,
        "where": lambda: torch.where(mask, x, y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "dropout": lambda: aten.native_dropout(x, 0.1, train=True),
    }


def pointwise_bf16() -> dict[str, Call]:
    x, y = (normal(ROWS, 2 * COLUMNS, dtype=torch.bfloat16) for _ in range(2))
    return {
        "gelu bf16": lambda: functional.gelu(x),
        "gelu backward bf16": lambda: aten.gelu_backward(x, y),
        "silu bf16": lambda: functional.silu(x),
        "softmax bf16": lambda: x.softmax(-1),
    }


def movement() -> dict[str, Call]:
    """A copy of a dense tensor is no kernel but a transfer of the driver's, which the profiler does not see."""
    x, y, wide = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS), normal(ROWS, 2 * COLUMNS)
    return {
        "copy of a slice": lambda: y.copy_(wide[:, :COLUMNS]),
        "cast to bf16": lambda: x.to(torch.bfloat16),
        "transposed copy": lambda: x.t().contiguous(),
        "cat": lambda: torch.cat([x, y]),
        "fill": lambda: y.fill_(1.5),
        "randn": lambda: torch.randn(ROWS, COLUMNS, device="cuda"),
    }


def rows() -> dict[str, Call]:
    x, y, weight, bias = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS)
    mean, rstd = normal(ROWS, 1), normal(ROWS, 1)
    return {
        "sum": x.sum,
        "sum of rows": lambda: x.sum(-1),
        "sum of columns": lambda: x.sum(0),
        "cumsum": lambda: x.cumsum(-1),
        "topk": lambda: x.topk(8, -1),
        "softmax": lambda: x.softmax(-1),
        "softmax backward": lambda: aten._softmax_backward_data(x, y, -1, torch.float32),
        "log_softmax": lambda: x.log_softmax(-1),
        "log_softmax backward": lambda: aten._log_softmax_backward_data(x, y, -1, torch.float32),
        "layer_norm": lambda: functional.layer_norm(x, (COLUMNS,), weight, bias),
        "layer_norm backward": lambda: aten.native_layer_norm_backward(
            x, y, [COLUMNS], mean, rstd, weight, bias, [True, True, True]
        ),
    }


def indexing() -> dict[str, Call]:
    x, y = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)
    index, order = torch.randint(COLUMNS, (ROWS, COLUMNS // 2), device="cuda"), torch.randperm(ROWS, device="cuda")
    table, ids = normal(1 << 18, 1 << 11), torch.randint(1 << 18, (1 << 18,), device="cuda")
    logits, target = normal(1 << 14, 1 << 15), torch.randint(1 << 15, (1 << 14,), device="cuda")
    one, total = torch.ones((), device="cuda"), torch.full((), 1.0 * (1 << 14), device="cuda")
    return {
        "gather": lambda: x.gather(1, index),
        "index_select": lambda: x.index_select(0, order),
        "index_add": lambda: y.index_add_(0, order, x),
        "embedding": lambda: functional.embedding(ids, table),
        "embedding backward": lambda: aten.embedding_dense_backward(table, ids, 1 << 18, -1, scale_grad_by_freq=False),
        "nll_loss backward": lambda: aten.nll_loss_backward(one, logits, target, None, 1, -100, total),
    }


def images() -> dict[str, Call]:
    x, center, scale = normal(64, 64, 256, 256), torch.zeros(64, device="cuda"), torch.ones(64, device="cuda")
    return {
        "group_norm": lambda: functional.group_norm(x, 8),
        "batch_norm inference": lambda: functional.batch_norm(x, center, scale),
        "batch_norm training": lambda: functional.batch_norm(x, None, None, training=True),
        "max_pool2d": lambda: functional.max_pool2d(x, 2),
        "avg_pool2d": lambda: functional.avg_pool2d(x, 2),
        "upsample nearest": lambda: functional.interpolate(x[:16], scale_factor=2),
    }


def optimizer() -> dict[str, Call]:
    parameters, grads, first, second = ([normal(1 << 24).abs_() for _ in range(8)] for _ in range(4))
    steps = [torch.ones((), device="cuda") for _ in range(8)]
    settings = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    return {
        "fused AdamW": lambda: torch._fused_adamw_(
            parameters, grads, first, second, [], steps, **settings, amsgrad=False, maximize=False
        ),
        "foreach add": lambda: torch._foreach_add_(parameters, grads, alpha=0.5),
        "foreach norm": lambda: torch._foreach_norm(parameters + grads),
    }


def contractions() -> dict[str, Call]:
    bf16 = torch.bfloat16
    q, k, v = (normal(64, 16, 2048, 128, dtype=bf16) for _ in range(3))
    a, b = normal(1 << 14, 1 << 14, dtype=bf16), normal(1 << 14, 1 << 14, dtype=bf16)
    tall, thin = normal(1 << 18, 1 << 11, dtype=bf16), normal(1 << 11, 64, dtype=bf16)
    return {
        "flash attention": lambda: functional.scaled_dot_product_attention(q, k, v),
        "GEMM 16384 bf16": lambda: a @ b,
        "GEMM tall bf16": lambda: tall @ thin,
        "GEMM vector bf16": lambda: tall @ thin[:, 0],
    }


GROUPS = (pointwise, pointwise_bf16, movement, rows, indexing, images, optimizer, contractions)
ONE_SIDED = ("GEMM",)


def run_under_profiler(counts_path: Path) -> None:
    """The child: counts each op, then runs it between markers while the profiler watches."""
    torch.manual_seed(0)
    cudart = torch.cuda.cudart()
    counts = []
    for name, call in (item for group in GROUPS for item in group().items()):
        with Counter() as counter:
            call()
        works = [op.work for op in counter.program().ops if op.launches and op.work is not None]
        counts.append((name, sum(w.bytes_read for w in works), sum(w.bytes_written for w in works)))
        torch.cuda.synchronize()
        cudart.cudaProfilerStart()
        torch.cuda._sleep(1)
        call()
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()
    counts_path.write_text(json.dumps(counts))


def profiled(counts_path: Path) -> list[tuple[float, float, int]]:
    """Bytes read and written and kernels launched between markers, as the counters saw them."""
    command = (
        *("ncu", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off"),
        *("--metrics", f"{READ},{WRITTEN}", "--csv", "--page", "raw", "--print-units", "base"),
        *(sys.executable, __file__, "--child", str(counts_path)),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)  # noqa: S603 (our own command)
    if done.returncode:
        raise SystemExit(f"ncu failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    table = done.stdout[done.stdout.index('"ID"') :]
    rows = list(csv.DictReader(io.StringIO(table)))[1:]  # the first row holds the units
    groups: list[list[dict[str, str]]] = []
    for row in rows:
        if MARKER in row["Kernel Name"]:
            groups.append([])
        else:
            groups[-1].append(row)
    return [(_sum(group, READ), _sum(group, WRITTEN), len(group)) for group in groups]


def _sum(rows: list[dict[str, str]], metric: str) -> float:
    return sum(float(row[metric].replace(",", "")) for row in rows)


def measured() -> DramBytes:
    with tempfile.TemporaryDirectory() as folder:
        counts_path = Path(folder) / "counts.json"
        seen = profiled(counts_path)
        counts = json.loads(counts_path.read_text())
    rows = tuple(
        Row(
            op=name,
            counted_read=read,
            counted_written=written,
            measured_read=seen_read,
            measured_written=seen_written,
            ratio=(read + written) / max(1.0, seen_read + seen_written),
            one_sided=name.startswith(ONE_SIDED),
            kernels=kernels,
        )
        for (name, read, written), (seen_read, seen_written, kernels) in zip(counts, seen, strict=True)
    )
    return DramBytes(
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        rows=rows,
        median_ratio=median(row.ratio for row in rows if not row.one_sided),
    )


def main() -> None:
    if sys.argv[1] == "--child":
        run_under_profiler(Path(sys.argv[2]))
        return
    result = measured()
    schema.write(result, Path(sys.argv[1]))
    print(f"{result.device}, torch {result.torch}: counted / measured bytes, median {result.median_ratio:.3f}")
    for row in sorted(result.rows, key=lambda row: row.ratio):
        counted, seen = row.counted_read + row.counted_written, row.measured_read + row.measured_written
        sides = f"read {units.moved(row.counted_read)} / {units.moved(row.measured_read)}"
        flag = "" if row.one_sided or abs(row.ratio - 1) <= 0.2 else "  <- outlier"
        print(f"{row.op:24} {units.moved(counted):>8} / {units.moved(seen):>8} = {row.ratio:.3f}  {sides}{flag}")


if __name__ == "__main__":
    main()
