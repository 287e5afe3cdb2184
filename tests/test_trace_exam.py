"""From a trace to a diagnosis: small ones made by hand, and real ones with known truth."""

import json

import pytest
from click.testing import CliRunner

from gobrrr import schema
from gobrrr.cli import gobrrr
from gobrrr.diagnose.diagnosis import Diagnosis, diagnose
from gobrrr.errors import BadInput
from gobrrr.exam import Exam
from gobrrr.machine.elsewhere import MEMORY, ceilings_of
from gobrrr.report.examined import Examined
from gobrrr.report.lanes import lanes_view
from gobrrr.report.view import step_view
from gobrrr.timing.traces.columns import Tables
from gobrrr.timing.traces.decode import chunk_of_events
from gobrrr.timing.traces.replay import USUAL_LAUNCH_S, slowness
from gobrrr.trace_examination import examine_trace
from traces import SHARED, Tape, additions, saved, shared

TRACES = sorted(path.relative_to(SHARED).as_posix() for path in SHARED.rglob("*.json.gz")) or ["none.json.gz"]


@pytest.fixture(autouse=True)
def _no_measurements(tmp_path, monkeypatch):
    """What this machine once measured does not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def diagnosed(path) -> Diagnosis:
    return diagnose(examine_trace(path, processes=1))


def truth(name: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(shared("truth.json").read_text())[name]
    return found


def test_a_step_that_the_device_fills_takes_what_its_kernels_take(tmp_path):
    made = diagnosed(additions(steps=6, kernel_us=300.0).save(tmp_path / "t.json"))
    assert made.step_s == pytest.approx(2 * 301e-6, rel=0.01)
    assert made.limiter == "device"
    assert made.regime == "bandwidth"
    assert made.bytes == 2 * 3 * 4 * (1 << 20)
    assert made.coverage["formula"] == 1
    assert made.machine.name == "NVIDIA H200"
    assert made.step_s_low <= made.step_s <= made.step_s_high
    assert made.as_run_floor_s is not None
    assert step_view(made).verdict[2] == "its fused floor is unknown"


def test_a_step_that_waits_for_the_host_is_overhead(tmp_path):
    made = diagnosed(additions(steps=6, kernel_us=2.0).save(tmp_path / "t.json"))
    assert made.regime == "overhead"
    assert made.limiter == "host"
    assert made.step_s < (made.step_profiled_s or 0)


def test_seconds_add_to_the_step_and_an_exam_survives_its_file(tmp_path):
    exam = examine_trace(additions().save(tmp_path / "t.json"))
    schema.write(exam, tmp_path / "exam.json.gz")
    made = diagnose(schema.read(Exam, tmp_path / "exam.json.gz"))
    assert sum(made.seconds.values()) == pytest.approx(made.step_s)
    assert schema.to_data(made) == schema.to_data(diagnose(exam))


def test_without_shapes_work_is_unknown_and_the_report_says_what_to_record(tmp_path):
    tape = additions()
    for event in tape.events:
        event["args"] = {key: value for key, value in event["args"].items() if not key.startswith("Input")}
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.coverage["unknown"] == 1
    assert any("record_shapes=True" in warning for warning in made.quality.warnings)


MULTIPLIED = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0>>"


@pytest.mark.parametrize(
    ("gradients", "numbers"), [([1000, 2000], 2_000_000), ([3000, 2000], 40 << 16), (None, 40 << 16)]
)
def test_lists_of_tensors_have_as_many_numbers_as_their_kernels_blocks_take_and_gradients_have(
    tmp_path, gradients, numbers
):
    """Of lists no sizes are recorded. A block takes 65536 numbers at the most."""
    tape = Tape()
    tape.step(0, 0.0, 1000.0)
    if gradients is not None:
        tape.op("torch::autograd::AccumulateGrad", 5.0, 5.0, [gradients])
    tape.op("aten::_foreach_mul_", 100.0, 100.0, [[], []], ["TensorList", "Scalar"], **{"Concrete Inputs": ["", "2.0"]})
    tape.launch(MULTIPLIED, 110.0, 120.0, 400.0, grid=[30, 1, 1])
    tape.launch(MULTIPLIED, 150.0, 530.0, 400.0, grid=[10, 1, 1])
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.bytes == 2 * 4 * numbers
    assert made.coverage["formula"] == 1


def test_a_host_is_as_slow_as_the_quicker_of_its_launches():
    tape = Tape()
    for number in range(40):
        tape.launch("k", 10.0 * number, 10.0 * number + 5, 1.0)
        tape.call("cudaLaunchKernel", 10.0 * number + 5, 400.0)
    tables = Tables()
    tables.add(chunk_of_events(tape.events))
    assert slowness(tables.trace()) == pytest.approx(4e-6 / USUAL_LAUNCH_S)
    assert slowness(Tables().trace()) == 1


def test_kernels_of_a_graph_have_classes_and_no_work(tmp_path):
    tape = Tape()
    for number in range(3):
        begin = 1000.0 * number
        tape.step(number, begin, 999.0)
        tape.number += 1
        tape.span("call", "cudaGraphLaunch", begin + 10, 20.0, correlation=tape.number)
        for place in range(8):
            name = "nvjet_sm90_tst_64x8" if place % 2 else "triton_poi_fused_add_0"
            tape.kernel(name, begin + 50 + 100 * place, 99.0, correlation=tape.number)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert set(made.classes) == {"contraction", "elementwise"}
    assert made.quality.graph_share == 1
    assert made.coverage["unknown"] == 1
    assert made.idle_s < 0.3 * made.step_s


def test_one_kernel_of_two_ops_without_shapes_is_a_row_of_each_and_a_bar_in_its_row(tmp_path):
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    for place, name in enumerate(("aten::cumsum", "mine::scan")):
        tape.op(name, 40.0 * place, 30.0)
        tape.launch("scan_kernel", 40.0 * place + 5, 40.0 * place + 12, 10.0)
    exam = examine_trace(tape.save(tmp_path / "t.json"))
    made = diagnose(exam)
    assert {row.fused_from for row in made.ops} == {("aten::cumsum",), ("mine::scan",)}
    bars = [bar.op for bar in lanes_view(Examined(exam, made)).bars if bar.kind == "kernel"]
    assert bars == [0, 1]


def test_of_several_devices_the_busiest_is_diagnosed_and_the_others_are_mentioned(tmp_path):
    tape = additions()
    for event in additions(kernel_us=1.0).events:
        if event["cat"] == "kernel":
            tape.span("kernel", "other", event["ts"], 1.0, pid=1, tid=7, device=1, stream=7, correlation=777)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert any("2 devices" in warning for warning in made.quality.warnings)
    assert {row.name for row in made.ops} == {"add_kernel"}


def test_a_trace_of_the_host_alone_is_diagnosed(tmp_path):
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    tape.op("aten::mm", 10.0, 60.0)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.busy_s == pytest.approx(60e-6)
    assert made.step_s == pytest.approx(100e-6)


def test_the_usual_step_of_the_host_is_shown_and_not_the_one_that_was_disturbed(tmp_path):
    tape, begin = Tape(), 0.0
    for number, us in enumerate((900.0, 100.0, 110.0, 500.0, 105.0, 95.0)):
        tape.step(number, begin, us)
        tape.op("aten::mm", begin + 10, 60.0)
        begin += us
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.step_s == pytest.approx(105e-6)
    assert made.busy_s == pytest.approx(60e-6)
    assert made.step_s_high <= 500e-6
    assert made.steps == 5


@pytest.mark.parametrize("steps", [1, 5])
def test_steps_of_the_host_are_found_by_its_ops_or_missed_aloud(tmp_path, steps):
    tape = Tape()
    for begin in range(0, 1000 * steps, 1000):
        tape.op("aten::mm", begin, 300.0)
        tape.op("aten::relu", begin + 300, 200.0)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.step_s == pytest.approx(1000e-6 if steps > 1 else 500e-6)
    assert any("profiler.step()" in warning for warning in made.quality.warnings) == (steps == 1)


def test_a_recording_without_the_device_it_names_says_so_and_has_none_of_its_ceilings(tmp_path):
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    tape.op("aten::mm", 10.0, 60.0)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.machine.ceilings_from == "unknown"
    assert any("NVIDIA H200" in warning and "ProfilerActivity.CUDA" in warning for warning in made.quality.warnings)


def test_a_host_that_was_not_recorded_is_not_called_full(tmp_path):
    tape = Tape()
    for number in range(20):
        tape.kernel("gemm", 100.0 * number, 90.0)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert made.host_s is None
    assert made.limiter == "unknown"


def test_kernels_outside_of_ops_are_not_blamed_on_a_recording_that_has_ops(tmp_path):
    tape = additions(steps=1)
    tape.launch("mine", 130.0, 900.0, 500.0)
    with_ops, without = diagnosed(tape.save(tmp_path / "a.json")), Tape()
    without.events = [event for event in tape.events if event["cat"] != "cpu_op"]
    told = diagnosed(without.save(tmp_path / "b.json")).quality.warnings
    assert any("outside of all ops" in warning for warning in with_ops.quality.warnings)
    assert not any("ProfilerActivity.CPU" in warning for warning in with_ops.quality.warnings)
    assert any("ProfilerActivity.CPU" in warning for warning in told)


def test_rows_of_kinds_that_nobody_knows_are_left_out_aloud(tmp_path):
    tape = additions()
    tape.span("kernel_of_tomorrow", "gemm", 100.0, 50.0)
    tape.span("gpu_user_annotation", "ProfilerStep#0", 100.0, 50.0)
    (told,) = diagnosed(tape.save(tmp_path / "t.json")).quality.warnings
    assert told == "rows of kinds that are not known are left out: kernel_of_tomorrow"


def test_a_trace_of_another_program_is_refused_by_its_categories(tmp_path):
    tape = Tape()
    tape.span("toplevel", "RunTask", 0.0, 10.0)
    with pytest.raises(BadInput, match="torch's profiler writes takes time; its spans have other categories: toplevel"):
        diagnosed(tape.save(tmp_path / "t.json"))


def test_where_no_work_is_known_there_are_no_flops_rather_than_none(tmp_path):
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    tape.op("aten::mm", 10.0, 60.0)
    made = diagnosed(tape.save(tmp_path / "t.json"))
    assert (made.flops, made.bytes) == (None, None)
    assert [(row.flops, row.bytes) for row in made.classes.values()] == [(None, None)]
    view = step_view(made)
    assert view.nothing is not None
    assert view.nothing.startswith("what could be gained is not known: 60 % of the step")
    assert any("--ceilings" in doubt for doubt in view.doubts)


def test_ops_above_their_ceilings_are_told_of(tmp_path):
    """An addition of 2²⁰ floats moves 12 MB, for which an H200 needs 3 µs."""
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    tape.op("aten::add", 10.0, 60.0, [[1 << 20], [1 << 20]])
    tape.launch("add_kernel", 12.0, 20.0, 1.0)
    (told,) = diagnosed(tape.save(tmp_path / "t.json")).quality.warnings
    assert told.startswith("100 % of busy time is in ops that take less than their floors, add before all")


def test_ceilings_of_another_machine_are_its_datasheet_with_a_stated_share():
    ceilings, source = ceilings_of("NVIDIA H200")
    assert ceilings.dram_bytes_per_s == pytest.approx(4.8e12 * MEMORY)
    assert source.startswith("datasheet")
    assert ceilings_of("A card that nobody knows")[1] == "unknown"
    assert ceilings_of(None)[0].dram_bytes_per_s is None


def test_ceilings_can_be_given_as_a_file(tmp_path):
    ceilings, _ = ceilings_of("NVIDIA H200")
    schema.write(ceilings, tmp_path / "machine.json")
    assert ceilings_of("Any card", tmp_path / "machine.json")[0] == ceilings


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 0, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "cpu_op", "name": "k", "ts": 1, "dur": 0, "pid": 0, "tid": 7},
        {"ph": "M", "name": "process_name"},
    ],
)
def test_a_trace_in_which_nothing_takes_time_is_refused(tmp_path, event):
    with pytest.raises(BadInput, match=r"takes? time"):
        diagnosed(saved(tmp_path / "t.json", json.dumps([event]).encode()))


def test_the_command_prints_a_report_or_data(tmp_path):
    path = additions(steps=6, kernel_us=300.0).save(tmp_path / "t.json")
    shown = CliRunner().invoke(gobrrr, ["trace", str(path), "-o", str(tmp_path / "exam.json.gz")])
    assert shown.exit_code == 0
    assert "recorded steps" in shown.stdout
    data = json.loads(CliRunner().invoke(gobrrr, ["trace", str(path), "--json"]).stdout)
    assert data["step_s_method"] == "replayed"
    again = json.loads(CliRunner().invoke(gobrrr, ["show", str(tmp_path / "exam.json.gz"), "--json"]).stdout)
    assert again["seconds"] == data["seconds"]


@pytest.mark.parametrize("name", TRACES)
def test_real_traces_are_diagnosed_and_their_seconds_add_up(name):
    made = diagnosed(shared(name))
    assert sum(made.seconds.values()) == pytest.approx(made.step_s)
    assert made.step_s_low <= made.step_s <= made.step_s_high


def test_gpt2_is_counted_and_timed_as_it_ran():
    made, known = diagnosed(shared("gpt2_train_b8x1024_bf16.json.gz")), truth("gpt2_train_b8x1024_bf16")
    assert made.flops_dense == pytest.approx(known["matmul_flops_per_step"], rel=0.005)
    assert made.coverage["formula"] >= 0.97
    assert made.step_s == pytest.approx(known["step_s_without_profiler"], rel=0.15)
    assert made.step_s_low <= known["step_s_without_profiler"] <= made.step_s_high


def test_a_chain_of_pointwise_ops_is_bandwidth():
    made, known = diagnosed(shared("pointwise_chain.json.gz")), truth("pointwise_chain")
    assert made.step_s == pytest.approx(known["step_s_without_profiler"], rel=0.1)
    assert made.shares is not None
    assert made.shares["bandwidth"] >= 0.95


def test_a_graphed_decode_step_is_not_idle():
    made = diagnosed(shared("llama1b_decode_reduce_overhead.json.gz"))
    known = truth("llama1b_decode_reduce_overhead")
    assert made.step_s == pytest.approx(known["step_s_without_profiler"], rel=0.15)
    assert made.idle_s < 0.2 * made.step_s
    assert made.limiter == "device"


@pytest.mark.parametrize("name", ["v100_resnet50_workers0", "v100_resnet50_workers4", "h100_bert_small", "h100_vit"])
def test_most_of_what_ran_is_counted_by_formula(name):
    assert diagnosed(shared(f"public/{name}.json.gz")).coverage["formula"] >= 0.95


@pytest.mark.parametrize("name", ["h100_bert_small", "h100_vit"])
def test_small_models_wait_for_the_host(name):
    made = diagnosed(shared(f"public/{name}.json.gz"))
    assert (made.regime, made.limiter) == ("overhead", "host")


def test_resnet_costs_what_resnet_costs():
    """4.09 GMAC an image forward, 3 times that with the backward, less the first layer's image gradient."""
    made = diagnosed(shared("public/v100_resnet50_workers0.json.gz"))
    assert made.flops_dense == pytest.approx(32 * 2 * 4.09e9 * 3, rel=0.02)
