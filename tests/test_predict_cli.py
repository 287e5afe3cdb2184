"""`gobrrr predict` from the prompt: what it says, and what it says about input that makes no sense."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gobrrr import schema
from gobrrr.cli.predict import command
from gobrrr.errors import BadInput, ProgramFailed, UsageError
from gobrrr.exam import Exam

EXAMS = Path(__file__).parent / "data" / "exams"

FACTORY = """
import torch
from gobrrr import Workload

def model():
    net = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    return net, torch.randn(32, 256)

def compiled():
    net, x = model()
    return torch.compile(net, mode="reduce-overhead"), x

def training():
    net = torch.nn.Linear(1024, 1024)
    return Workload(net, torch.randn(64, 1024), lambda out: out.square().mean(), torch.optim.AdamW(net.parameters()))

def enormous():
    return torch.nn.Linear(1 << 17, 1 << 17), torch.randn(8, 1 << 17)

def closes():
    ids, net = torch.randint(50, (4, 8)), torch.nn.Embedding(50, 50)
    return Workload(net, ids, lambda out: torch.nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten()))

def bare():
    x = torch.randn(64, 64)
    return lambda: x @ x

def idle():
    return lambda: None

def scaled():
    x, scale = torch.randn(64, 64).to(torch.float8_e4m3fn), torch.tensor(1.0)
    return lambda: torch._scaled_mm(x, x.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

def looks():
    x = torch.randn(1 << 20)
    return lambda: x.relu() if x.sum() > 0 else x
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    return lambda name: f"{path}:{name}"


def predicted(*arguments: str) -> dict:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_json_has_what_others_rely_on(target):
    found = predicted(target("training"), "--on", "h100,b200,mi300x", "--what-if", "batch=2x,compile")
    assert [one["accelerator"] for one in found["predictions"]] == ["h100-sxm", "b200-sxm", "mi300x"]
    documented = "accelerator step_s low_s high_s regime limiter shares flops bytes peak_memory_bytes fits".split()
    for one in found["predictions"]:
        assert set(documented) <= set(one)
        assert one["low_s"] < one["step_s"] < one["high_s"]
        assert sum(one["shares"].values()) == pytest.approx(1)
    assert [one["change"] for one in found["what_if"]][:3] == ["batch=2x", "compile", "batch=2x + compile"]


def test_a_model_that_is_compiled_is_predicted_so(target):
    (eager,) = predicted(target("model"), "--on", "h100")["predictions"]
    (graphed,) = predicted(target("compiled"), "--on", "h100")["predictions"]
    assert graphed["step_s"] < eager["step_s"] / 3


def test_a_batch_of_one_is_slow_because_of_the_host(target):
    (one,) = predicted(target("model"), "--on", "h100")["predictions"]
    assert one["limiter"] == "host"
    assert one["regime"] == "overhead"


def test_twice_the_batch_of_a_host_bound_step_is_nearly_free(target):
    (found,) = predicted(target("model"), "--on", "h100", "--what-if", "batch=2x")["what_if"]
    assert found["speedup"] == pytest.approx(2, rel=0.01)


def test_a_longer_sequence_counts_by_tokens(target):
    found = predicted(target("closes"), "--on", "h100", "--what-if", "batch=1x")["what_if"]
    assert found[0]["speedup"] == pytest.approx(1)
    with pytest.raises(ProgramFailed, match="closes over keeps its size"):
        predicted(target("closes"), "--on", "h100", "--what-if", "sequence=2x")


def test_an_exam_answers_what_ifs_on_its_own_machine():
    """BERT-large was recorded on an H200; compiled it took 42.7 to 49.4 ms there, and 41.3 with graphs."""
    found = predicted("--exam", str(EXAMS / "bert_large.json.gz"), "--what-if", "compile,graph,checkpoint")
    assert [one["accelerator"] for one in found["predictions"]] == ["h200-sxm"]
    seconds = {one["change"]: one["step_s"] for one in found["what_if"]}
    assert 0.75 * 42.7e-3 < seconds["compile"] < 1.25 * 49.4e-3
    assert seconds["graph"] < seconds["compile"] < found["predictions"][0]["step_s"] < seconds["checkpoint"]


def test_a_compiled_exam_is_scaled_kernel_by_kernel():
    """By what each is: products by their arithmetic, three times slower on an A100, and not all of it by bandwidth."""
    name = str(EXAMS / "bert_large_compiled.json.gz")
    h200, h100, a100 = predicted("--exam", name, "--on", "h200-sxm,h100,a100")["predictions"]
    assert h200["shares"]["compute"] > 0.2
    assert h100["shares"]["compute"] == pytest.approx(h200["shares"]["compute"], rel=0.05)
    assert 2.2 < a100["device_s"] / h200["device_s"] < 3.2


def test_no_share_of_a_scaled_exam_is_below_zero():
    for one in predicted("--exam", str(EXAMS / "bert_large.json.gz"), "--on", "a100,t4,p100")["predictions"]:
        assert min(one["shares"].values()) >= 0


def test_a_trace_is_scaled_too_and_does_not_say_what_memory_it_takes(tmp_path):
    exam = schema.read(Exam, EXAMS / "bert_large_compiled.json.gz")
    path = tmp_path / "of_a_trace.json"
    schema.write(replace(exam, program=None), path)
    found = predicted("--exam", str(path), "--on", "h100,a100", "--what-if", "dtype=fp16,power=300")
    one, other = found["predictions"]
    assert one["device_s"] < other["device_s"]
    assert one["peak_memory_bytes"] is one["fits"] is None
    assert all(change["step_s"] > 0 and change["peak_memory_bytes"] is None for change in found["what_if"])
    assert "?" in CliRunner().invoke(command, ["--exam", str(path), "--on", "h100"]).stdout
    with pytest.raises(UsageError, match="'compile' needs the workload"):
        predicted("--exam", str(path), "--what-if", "compile")


def test_an_exam_cannot_be_counted_anew():
    with pytest.raises(UsageError, match="needs the workload"):
        predicted("--exam", str(EXAMS / "bert_large.json.gz"), "--what-if", "batch=2x")


def test_what_does_not_fit_says_so(target):
    small, large = predicted(target("enormous"), "--on", "rtx4090,b200")["predictions"]
    assert not small["fits"]
    assert large["fits"]
    text = CliRunner().invoke(command, [target("enormous"), "--on", "rtx4090"]).stdout
    assert "too much" in text


def test_the_table_ends_with_the_next_command(target):
    text = CliRunner().invoke(command, [target("model"), "--on", "h100", "--what-if", "graph"]).stdout
    assert "speed-up" in text
    assert "next: gobrrr examine" in text


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (["--on", "h1000"], UsageError, "near are h100"),
        (["--on", "v100-pcie", "--what-if", "dtype=fp8"], UsageError, "no fp8 matrix units"),
        (["--on", "h100", "--what-if", "batch=0x"], UsageError, "above zero"),
        (["--on", "h100", "--what-if", "power=nan"], UsageError, "above zero"),
        (["--on", "h100", "--what-if", "batch=2x,batch=4x"], UsageError, "changes batch twice"),
        (["--on", "rtx3080ti"], UsageError, "near are rtx3090ti, rtx2080ti, rtx3080,"),
        (["--on", "h100", "--what-if", "colour=red"], UsageError, "allowed are batch=2x"),
        (["--on", "h100", "--exam", "x.json"], UsageError, "FILE.py:NAME or --exam"),
        (["--on", ","], UsageError, "accelerators to predict for"),
    ],
)
def test_bad_input_is_one_sentence(target, arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        CliRunner().invoke(command, [target("model"), *arguments], catch_exceptions=False)


def test_the_batch_of_a_bare_step_cannot_be_changed(target):
    with pytest.raises(UsageError, match="bare step"):
        predicted(target("bare"), "--on", "h100", "--what-if", "batch=2x")


def test_a_step_without_ops_has_nothing_to_predict(target):
    with pytest.raises(UsageError, match="runs no op"):
        predicted(target("idle"), "--on", "h100")


def test_products_of_eight_bits_are_refused_on_a_card_without_units_for_them(target):
    assert predicted(target("scaled"), "--on", "h100")["predictions"]
    with pytest.raises(UsageError, match="a100-sxm4-80gb multiplies nothing in fp8"):
        predicted(target("scaled"), "--on", "h100,a100")


def test_values_that_fake_tensors_lack_are_named_with_the_way_out(target):
    with pytest.raises(ProgramFailed, match="--real"):
        predicted(target("looks"), "--on", "h100")
    assert predicted(target("looks"), "--on", "h100", "--real")["predictions"]


def test_a_damaged_exam_is_bad_input(tmp_path):
    path = tmp_path / "exam.json"
    path.write_text("{}")
    with pytest.raises(BadInput):
        predicted("--exam", str(path), "--on", "h100")
