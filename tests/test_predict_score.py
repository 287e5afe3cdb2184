"""The score command: its statistics against scipy, its names, and one row of each format."""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import counts, predict_left_out, vision_counts
from benchmarks import predict as scoring
from benchmarks.predict_models import Vision
from benchmarks.predict_tables import SWEPT, Row

from gobrrr.predict.spread import FITTED, Family
from gobrrr.work.fake import fake_tensors

ROWS = {
    "gemm.csv": "system,dtype,source,m,n,k,latency_ms\nh200_sxm,bfloat16,sglang,4096,4096,4096,0.2\n",
    "attention.csv": "system,kind,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,window_size,latency_ms\n"
    "b200_sxm,context,1,4096,0,32,8,128,,0.2\nl40s,generation,8,1,4096,32,8,128,0.0,0.1\n",
    "llm_ops_fp16.csv": "gpu,model,tp,num_tokens,op,kind,M,K,N,median_ms,min_ms,n_repeats\n"
    "h100,x,1,128,add,add,128,4096,4096,0.01,0.01,1\n",
    "vector_ops_fp32.csv": "OPName,Latency,Device,B,H,set\nln,0.5,Tesla T4,8192,4096,train\n",
    "conv_ops_fp32.csv": "OPName,Latency,Device,Kernel Name,B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,"
    "Stride,Padding\nconv,1.0,NVIDIA L4,x,16,64,64,3,56,1,1\n",
    "eager_ops.csv": "gpu,op,input_dims,input_types,kernel_us_per_call\nNVIDIA H100 80GB HBM3,aten::add,"
    '"[[64, 64], [64, 64], []]","[""float"", ""float"", ""Scalar""]",2.0\n',
}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=40))
def test_spearman_is_scipys(pairs):
    ours, theirs = zip(*pairs, strict=True)
    found = scoring.spearman(ours, theirs)
    if len(set(ours)) == 1 or len(set(theirs)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(ours, theirs).statistic)


def row(measured: float, predicted: float, workload: str = "", table: str = "t") -> Row:
    return Row((table,), "x", measured, predicted, Family.PRODUCT, workload)


def test_a_score_is_what_its_names_say():
    found = scoring.score("t", "x", [row(1, 1.1), row(1, 0.5), row(2, 2)])
    assert found.mape == pytest.approx(0.2)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.55 ** (1 / 3))
    assert found.within_20 == pytest.approx(2 / 3)


def test_speedups_are_compared_by_model():
    before = [row(1.0, 1.0, name, "vision nchw") for name in "abc"]
    after = [row(seconds, seconds, name, "vision nhwc") for name, seconds in zip("abc", (0.5, 2.0, 1.0), strict=True)]
    (found,) = scoring.compared([*before, *after])
    assert (found.n, found.slowed, found.recognised, found.false_alarms) == (3, 1, 1.0, 0.0)
    assert found.median_log_error == pytest.approx(0)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_knee_is_where_host_and_device_take_as_long(factor):
    """A host of 10 ms, and a device of 1 ms an item: at 10."""
    sweep = [(items, max(10e-3, items * 1e-3)) for items in (1, 2, 4, 8, 16, 32)]
    assert scoring.knee(sweep) == pytest.approx(10)
    rows = [
        Row(("sweep",), "x", seconds, max(factor * 10e-3, items * 1e-3), Family.HOST, SWEPT, items=items)
        for items, seconds in sweep
    ]
    (found,) = scoring.knees([*rows, row(1, 1)])
    assert found.ratio == pytest.approx(factor)


def test_a_model_that_cannot_be_counted_is_not_tried_again(tmp_path):
    def broken() -> None:
        raise ValueError

    assert counts.counted("broken", broken, tmp_path) is None
    assert counts.counted("broken", mock.Mock(side_effect=AssertionError), tmp_path) is None


def test_without_timm_vision_models_that_were_not_counted_are_left_out(tmp_path, capsys):
    image = vision_counts.Image("resnet50", side=224, last=False, batch=8)
    with mock.patch.object(vision_counts, "find_spec", return_value=None):
        vision_counts.count_missing([image], tmp_path)
    assert vision_counts.program(image, tmp_path) is None
    assert "timm" in capsys.readouterr().err


class Remembering(torch.nn.Module):
    """Makes a table at its first step, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.table = torch.nn.Conv2d(3, 8, 3), None

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.zeros(8, 1, 1).exp()
        return self.convolution(image) + self.table


@pytest.mark.parametrize("lasts", [(False,), (False, False), (False, False, True), (True,)])
def test_vision_models_are_counted_as_they_run_in_the_long_run(lasts):
    images = [vision_counts.Image("x", 16, last, batch) for batch, last in enumerate(lasts, 1)]
    with mock.patch.object(vision_counts, "built", return_value=Remembering()), fake_tensors():
        found = list(vision_counts.programs(images))
    for image, program in zip(images, found, strict=True):
        names = [op.name for op in program.ops]
        assert "aten::exp" not in names
        convolved = next(op for op in program.ops if "conv" in op.name)
        assert convolved.inputs[0].shape == (image.batch, 3, 16, 16)
        assert (convolved.inputs[0].stride[1] == 1) == image.last


@pytest.mark.parametrize("name", ROWS)
def test_every_format_is_read_for_accelerators_that_no_constant_was_fitted_to(name, tmp_path):
    """By its columns: the file's name says nothing."""
    (tmp_path / "of_some_card.csv").write_text(ROWS[name])
    rows, missing = scored_rows(tmp_path)
    assert len(rows) == ROWS[name].count("\n") - 1
    assert not missing
    for one in rows:
        assert 0.2 < one.predicted_s / one.measured_s < 5


def scored_rows(folder: Path) -> tuple[list[Row], dict[str, dict[str, int]]]:
    missing: scoring.Missing = defaultdict(Counter)
    rows = list(scoring.rows_of(folder, folder / "counts", missing))
    return rows, {table: dict(whys) for table, whys in missing.items() if whys}


def test_rows_that_cannot_be_scored_are_left_out_with_the_reason(tmp_path):
    head = "system,dtype,source,m,n,k,latency_ms"
    good = "Tesla T4,fp16,x,64,64,64,0.01"
    bad = {
        "Tesla T4,fp8,x,64,64,64,0.01": "t4 multiplies nothing in fp8",
        "Tesla T4,nvfp4,x,64,64,64,0.01": "dtype is 'nvfp4'",
        "Tesla T4,fp16,x,0,64,64,0.01": "m is not above zero",
        "Tesla T4,fp16,x,64,64,,0.01": "k is empty",
        "Tesla T4,fp16,x,64,64,64,OOM": "latency_ms is 'OOM', no number",
        "Tesla T4,fp16,x,64,64,64,nan": "latency_ms is 'nan', no number",
        "Tesla T4,fp16,x,64,64,64,-1": "latency_ms is not above zero",
        "Tesla T4,fp16": "m is empty",
        "RTX 3080 Ti,fp16,x,64,64,64,0.01": "no datasheet is of 'RTX 3080 Ti'; near are rtx3090ti, rtx2080ti, rtx3080,",
    }
    (tmp_path / "gemm.csv").write_text("\n".join((head, good, *bad)))
    rows, missing = scored_rows(tmp_path)
    assert len(rows) == 1
    for line, why in zip(missing["gemm.csv"].items(), bad.values(), strict=True):
        assert line[0].startswith(why)
        assert line[1] == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no rows"),
        ("system,dtype,m,n,k,latency_ms\n", "it has no rows"),
        ("system,dtype,m,n,k\nh100,bf16,1,1,1\n", "those of gemm would need latency_ms"),
        ("\0\1\2\n\3\n", "the columns of no format"),
        ("model,infer_img_size,infer_batch_size,infer_step_time\nx,1,1,1\n", "its name is not of the form infer-"),
    ],
)
def test_tables_of_no_format_are_named(text, why, tmp_path):
    (tmp_path / "gemm.csv").write_text(text)
    rows, missing = scored_rows(tmp_path)
    assert not rows
    assert why in next(iter(missing["gemm.csv"]))


def test_columns_may_be_separated_by_anything_and_be_more_than_are_needed(tmp_path):
    for number, separator in enumerate(",;\t"):
        lines = "\ufeffextra, system ,dtype,m,n,k,latency_ms\n1,h100,bf16,64,64,64,0.01\n".replace(",", separator)
        (tmp_path / f"{number}.csv").write_text(lines, encoding="utf-8")
    rows, missing = scored_rows(tmp_path)
    assert [row.accelerator for row in rows] == ["h100-sxm"] * 3
    assert not missing


@pytest.mark.parametrize(
    ("name", "table", "accelerator"),
    [
        ("infer-amp-nchw-pt240-cu124-rtx4090-dynamo", "vision nchw-dynamo", "rtx4090"),
        ("benchmark-infer-amp-nhwc-pt240-cu124-rtx3090", "vision nhwc", "rtx3090"),
        ("infer-amp-nchw-pt291-cu130-5090", "vision nchw", "rtx5090"),
        ("infer-amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo", "vision amp_bf16 nchw-dynamo", "rtx-pro-6000-bw-maxq"),
        ("infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo", "vision fp32 nchw-dynamo", "cpu-i7-12700h"),
    ],
)
def test_a_table_of_vision_models_is_named_after_how_they_ran(name, table, accelerator):
    found = Vision.of(Path(f"{name}.csv"))
    assert (found.table, found.device.name) == (table, accelerator)


def test_vision_models_are_counted_in_the_precision_of_their_table():
    for precision, dtype in {"amp": "fp16", "amp_bf16": "bf16", "bf16": "bf16", "fp32": "fp32"}.items():
        image = vision_counts.Image("x", 16, last=False, batch=2, precision=precision)
        with mock.patch.object(vision_counts, "built", return_value=Remembering()), fake_tensors():
            (program,) = vision_counts.programs([image])
        convolved = next(op for op in program.ops if "conv" in op.name)
        assert {ref.dtype for ref in convolved.inputs} == {dtype}


def test_speedups_are_those_of_one_software(tmp_path):
    """A model that was timed by two versions of torch is compared within each."""
    before = [row(1.0, 1.0, f"a 224 {torch}", "vision nchw") for torch in ("pt240", "pt291")]
    after = [row(0.5, 0.5, "a 224 pt291", "vision nchw-dynamo")]
    (found,) = scoring.compared([*before, *after])
    assert found.n == 1


def test_a_sweep_of_one_step_has_no_knee():
    assert list(scoring.knees([Row(("sweep",), "x", 1.0, 1.0, Family.HOST, SWEPT)])) == []


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0, 1))
def test_a_quantile_is_numpys(values, share):
    assert scoring.quantile(sorted(values), share) == pytest.approx(np.quantile(values, share))


def test_a_folder_that_is_not_there_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit):
        scoring.main([str(tmp_path / "none")])
    assert "is no folder" in capsys.readouterr().err


def test_what_is_left_out_is_predicted_from_the_others_alone(tmp_path):
    """The one that is left out is off by a factor of ten: nothing moves towards it."""
    lines = [f"{card},bfloat16,sglang,{m},4096,4096,{{}}" for card in ("h200_sxm", "a100_sxm") for m in (64, 512, 4096)]
    head = "system,dtype,source,m,n,k,latency_ms"

    def fitted(slower: float) -> list[float]:
        times = [1.0 * slower, 2.0 * slower, 9.0 * slower, 0.05, 0.1, 0.6]
        rows = "\n".join(line.format(time) for line, time in zip(lines, times, strict=True))
        (tmp_path / "gemm.csv").write_text(f"{head}\n{rows}\n")
        return predict_left_out.fit(predict_left_out.FITTED[0], tmp_path, "h200-sxm")

    assert fitted(1.0) == fitted(10.0)


def test_what_is_left_out_has_the_interval_of_one_that_nobody_saw():
    with predict_left_out.unseen("h100-sxm"):
        assert "h100-sxm" not in FITTED[Family.PRODUCT]
    assert "h100-sxm" in FITTED[Family.PRODUCT]
