"""The whole lab in miniature: made-up ceilings, tiny sizes, nothing compiled. Structure only, never times."""

import io
import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from gobrrr import examination, schema
from gobrrr.cli.lab import command
from gobrrr.errors import UsageError
from gobrrr.lab import fusion, intensity, overhead, run, site, sizes
from gobrrr.lab.bert import PAPER_FLOPS, encoder_layer, training
from gobrrr.lab.claim import CLAIMED, Verdict
from gobrrr.lab.compiling import compiled
from gobrrr.lab.experiment import EXPERIMENTS
from gobrrr.lab.result import Column, Drawing, Lab, Result
from gobrrr.lab.site import NotHere, Site
from gobrrr.machine import identify
from gobrrr.report.lab import markdown, render, text
from gobrrr.timing.steady import StepEffort
from gobrrr.work.counter import counted_program
from gobrrr.work.work import total
from test_floors import CPU

TINY = replace(
    sizes.CPU,
    effort=StepEffort(warmup_steps=2, warmup_s=1, window_s=0, window_steps=1, windows=3, budget_s=0),
    elements=1 << 12,
    repeats=(1, 2, 4),
    op_elements=(16, 256),
    ops=3,
    python_additions=100,
    small_batches=(1, 2),
    large_width=32,
    large_batches=(1, 4),
    product=(8, 4, 8),
    bert_length=16,
    bert_hidden=64,
)


def uncompiled(function, *args):
    return lambda: function(*args)


def refused(function, *args):
    raise NotHere("torch.compile does not work here: no compiler")


def tiny_lab(monkeypatch, compiler=uncompiled, names=()) -> Lab:
    def measured(device, *, only):
        return CPU

    for module in (site, examination):
        monkeypatch.setattr(module, "measured", measured)
    for module in (intensity, fusion, overhead):
        monkeypatch.setattr(module, "compiled", compiler)
    monkeypatch.setattr(run, "identify", lambda: identify("cpu"))
    return run.run(names, lambda number, total, what: None, TINY)


@pytest.fixture(scope="module")
def lab() -> Lab:
    with pytest.MonkeyPatch.context() as patch:
        return tiny_lab(patch)


def points(lab: Lab, name: str) -> list:
    return [point for result in lab.experiments if result.name == name for point in result.points]


def test_every_claim_of_the_six_experiments_has_a_verdict(lab):
    given = [claim.id for result in lab.experiments for claim in result.claims]
    assert sorted(given) == sorted(CLAIMED)
    assert [result.name for result in lab.experiments] == list(run.ORDER)
    assert set(run.ORDER) == set(EXPERIMENTS)
    for result in lab.experiments:
        assert [claim.id for claim in result.claims] == list(EXPERIMENTS[result.name].claims)


def test_a_verdict_follows_from_its_checks_and_an_untestable_claim_says_why(lab):
    for claim in (claim for result in lab.experiments for claim in result.claims):
        assert claim.checks or claim.verdict is Verdict.UNTESTABLE
        assert claim.why


def test_the_fused_pair_moves_half_of_the_bytes(lab):
    moved = {point["name"]: point["bytes"] for point in points(lab, "fusion")}
    assert moved["cos of cos, fused"] == moved["one cos"] == moved["cos of cos"] / 2
    assert moved["four ops"] == 3 * moved["four ops, fused"] == 36 * TINY.elements
    assert moved["cast, scale, cast"] == 5 * moved["scale"] == 20 * TINY.elements
    assert moved["cast, scale, cast, fused"] == moved["scale, compiled"] == 4 * TINY.elements


@pytest.mark.parametrize("repeats", [1, 2, 64])
def test_the_sweep_multiplies_more_and_moves_the_same(monkeypatch, repeats):
    monkeypatch.setattr(site, "measured", lambda device, *, only: CPU)
    x, out = torch.rand(TINY.elements), torch.empty(TINY.elements)
    step = uncompiled(intensity.multiplied(repeats), x, out)
    seen = Site("cpu", TINY, lambda what: None).weighed(step, "the sweep", fused=True)
    assert seen.bytes == 8 * TINY.elements
    assert seen.flops == repeats * TINY.elements
    assert seen.regime == ("bandwidth" if repeats < intensity.Rates.of(CPU).ridge else "compute")


def test_without_a_compiler_what_needs_one_says_so_and_the_rest_runs(monkeypatch):
    lab = tiny_lab(monkeypatch, refused, ["intensity", "fusion", "overhead"])
    claims = {claim.id: claim for result in lab.experiments for claim in result.claims}
    for claim in ("c07", "c08", "c17", "c09", "c16", "c23"):
        assert claims[claim].verdict is Verdict.UNTESTABLE
        assert "no compiler" in claims[claim].why
    assert claims["c10"].verdict is not Verdict.UNTESTABLE
    assert claims["c11"].measured is not None


def test_on_a_cpu_nothing_is_asynchronous_and_there_are_no_graphs(lab):
    claims = {claim.id: claim for result in lab.experiments for claim in result.claims}
    assert claims["c12"].verdict is claims["c25"].verdict is Verdict.UNTESTABLE


def test_the_lab_is_a_document(lab):
    data = schema.document_data(lab)
    assert data["schema_version"] == 1
    for result in data["experiments"]:
        assert {"name", "claims", "points"} <= result.keys()
        for claim in result["claims"]:
            assert {"id", "claimed", "measured", "verdict", "why"} <= claim.keys()
    assert schema.from_document(Lab, json.loads(schema.dumps(lab))) == lab


def test_the_page_draws_every_drawing_and_names_every_claim(lab):
    file = io.StringIO()
    Console(file=file, width=80).print(render(lab))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for result in lab.experiments:
        assert all(drawing.title in text for drawing in result.drawings)
        assert all(f"{claim.id} {claim.verdict}" in text for claim in result.claims)
    assert all(f"| {claim} |" in markdown(lab) for claim in CLAIMED)


def test_an_unknown_experiment_is_a_usage_error():
    with pytest.raises(UsageError, match="'nosuch'; there are: peaks, intensity, fusion, overhead, batch, bert"):
        run.run(["nosuch"], lambda number, total, what: None)


def test_the_command_keeps_data_and_page(lab, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "run", lambda names, progress: lab)
    result = CliRunner().invoke(command, ["--json", "-o", str(tmp_path / "lab.txt"), "-o", str(tmp_path / "lab.json")])
    assert json.loads(result.stdout) == schema.document_data(lab)
    assert schema.read(Lab, tmp_path / "lab.json") == lab
    assert "c25" in (tmp_path / "lab.txt").read_text()


def test_a_layer_of_bert_large_does_the_papers_flops():
    """Products, forward: 24·B·L·d² in the linear layers and 4·B·L²·d in attention; backward twice that."""
    paper = replace(sizes.CUDA, half="float32")
    with torch.device("meta"):
        step = training(Site("meta", paper, lambda what: None), 1).step
    ops = counted_program(step).ops
    batch, length, width = paper.bert_batch, paper.bert_length, paper.bert_hidden
    contractions = total(op.work for op in ops if op.cls == "contraction")
    assert contractions.matrix_flops == 3 * (24 * batch * length * width**2 + 4 * batch * length**2 * width)
    everything = total(op.work for op in ops)
    for cls, said in PAPER_FLOPS.items():
        ours = total(op.work for op in ops if op.cls == cls)
        assert ours.flops / everything.flops == pytest.approx(said, abs=0.002)


def test_the_layer_is_that_of_a_transformer_encoder():
    """With dropout off it computes what torch's own post-norm layer does from the same weights."""
    torch.manual_seed(0)
    ours = encoder_layer(128).eval()
    theirs = torch.nn.TransformerEncoderLayer(128, 2, 512, activation="gelu", batch_first=True).eval()
    ours.qkv.load_state_dict(
        {"weight": theirs.self_attn.in_proj_weight.detach(), "bias": theirs.self_attn.in_proj_bias.detach()}
    )
    for mine, other in (
        (ours.out, theirs.self_attn.out_proj),
        (ours.wide, theirs.linear1),
        (ours.narrow, theirs.linear2),
    ):
        mine.load_state_dict(other.state_dict())
    x = torch.randn(2, 5, 128)
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_compiled_chain_computes_what_it_says_or_says_why_not():
    x, out = torch.rand(64), torch.zeros(64)
    try:
        compiled(intensity.multiplied(3), x, out)()
    except NotHere as reason:
        pytest.skip(str(reason))
    torch.testing.assert_close(out, x * intensity.FACTOR**3)


def test_a_compiler_that_breaks_is_named(monkeypatch):
    def broken():
        raise RuntimeError("InvalidCxxCompiler: none found\nmore")

    monkeypatch.setattr(torch, "compile", lambda function, **options: broken)
    with pytest.raises(NotHere, match=r"does not work here: InvalidCxxCompiler: none found$"):
        compiled(lambda: None)


@pytest.mark.gpu
def test_on_a_gpu_overhead_is_testable():
    lab = run.run(["overhead"], lambda number, total, what: None)
    assert all(claim.verdict is not Verdict.UNTESTABLE for claim in lab.experiments[0].claims)


def test_the_tables_of_the_documentation_are_the_kept_results():
    root = Path(__file__).parent.parent
    page = (root / "docs" / "regimes.md").read_text()
    filled = runpy.run_path(str(root / "benchmarks" / "lab_tables.py"))["filled"]
    assert filled(page) == page
    assert "<!-- lab: cpu2 -->" in page
    assert "<!-- lab: h200 -->" in page


def test_a_bar_that_nobody_measured_keeps_its_row_and_has_no_length():
    drawing = Drawing("bars", "rates", Column("what", "what"), Column("rate", "measured", "FLOP/s"))
    points = ({"what": "fp8", "rate": None}, {"what": "fp16", "rate": 2e12}, {"what": "fp4", "rate": "odd"})
    result = Result(name="peaks", question="how fast?", claims=(), points=points, drawings=(drawing,))
    page = text(Lab(device="d", torch=None, threads=1, made_at="2026", experiments=(result,)))
    (unknown,) = (line for line in page.splitlines() if line.startswith("fp8"))
    assert "?" in unknown
    assert "█" not in unknown
    assert "2.00 TFLOP/s" in page
    assert "fp4" not in page
