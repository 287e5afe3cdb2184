"""The score command: its statistics against scipy, its names, and one row of each format."""

import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import counts, predict_left_out, vision_counts
from benchmarks import predict as scoring
from benchmarks.predict_tables import FORMATS, SWEPT, Row

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


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("a100_sxm", "a100-sxm4-80gb"),
        ("h100_sxm", "h100-sxm"),
        ("h200_sxm", "h200-sxm"),
        ("b200_sxm", "b200-sxm"),
        ("gb200", "gb200"),
        ("l40s", "l40s"),
        ("a100", "a100-sxm4-80gb"),
        ("a40", "a40"),
        ("rtx_pro_6000_server", "rtx-pro-6000-bw-server"),
        ("NVIDIA_A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla_V100-PCIE-32GB", "v100-pcie-32gb"),
        ("Tesla_T4", "t4"),
        ("DGX-1 (1x V100 16GB)", "v100-sxm2"),
        ("NVIDIA L4", "l4"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD_Instinct_MI250", "mi250-gcd"),
        ("rtx5090", "rtx5090"),
        ("NVIDIA X9000", None),
    ],
)
def test_tables_names_are_matched(spelled, expected):
    found = scoring.accelerator(spelled)
    assert (found and found.name) == expected


@pytest.mark.parametrize("name", ROWS)
def test_every_format_is_read_for_accelerators_that_no_constant_was_fitted_to(name, tmp_path):
    path = tmp_path / name
    path.write_text(ROWS[name])
    read = next(read for pattern, read in FORMATS.items() if path.match(pattern))
    rows = list(read(path, scoring.Named()))
    assert len(rows) == ROWS[name].count("\n") - 1
    for one in rows:
        assert 0.2 < one.predicted_s / one.measured_s < 5


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
