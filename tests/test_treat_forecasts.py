"""What treatments promise, from Exams recorded on an H200 whose treated times are known."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr import schema
from gobrrr.exam import Exam
from gobrrr.predict.host import COMPILED
from gobrrr.treat.chart import Chart
from gobrrr.treat.fusing import compiled_host_s, fused_forecast, is_compiled, seen_by_compilers
from gobrrr.treat.search import graphed_exam
from gobrrr.treat.treatment import TREATMENTS, Dose, Forecast, Unfit
from gobrrr.treat.treatments.compile_tuned import is_narrow
from gobrrr.treat.treatments.padded_products import _gained_s
from gobrrr.work.op import OpClass, Phase, TensorRef

EXAMS = Path(__file__).parent / "data" / "exams"


def chart(name: str, **changes) -> Chart:
    model = torch.nn.Linear(2, 2)
    subject = SimpleNamespace(
        device="cuda:0",
        models={"model": model},
        optimizers=[torch.optim.AdamW(model.parameters())],
        workload=None,
        plan=(),
        modules=lambda: [("model:", model)],
    )
    return Chart(schema.read(Exam, EXAMS / f"{name}.json.gz"), SimpleNamespace(**vars(subject) | changes))


@cache
def known(name: str) -> Chart:
    return chart(name)


def forecast(name: str, exam: str) -> Forecast:
    return TREATMENTS[name].kind.forecast(known(exam), ("step",))


NAMES = ("compile", "compile-regions", "compile-tuned", "compiled-optimizer", "fused-optimizer", "whole-step-graph")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exam", ["bert_large", "gpt2", "llama_decode", "bert_large_compiled"])
def test_a_forecast_lies_between_its_worst_and_its_bound(name, exam):
    found = forecast(name, exam)
    assert 0 < found.low <= found.speedup <= found.high


def test_a_graph_leaves_no_more_than_the_kernels():
    """75.3 ms measured over eager in a graph on a slower host; 41 ms of kernels bound it."""
    found, case = forecast("whole-step-graph", "bert_large"), known("bert_large").case
    assert found.high == pytest.approx(case.exam.step_s / case.busy_s)


def rated(**rates: float) -> Chart:
    """A chain of products as if they had been in fp32, on a device with these rates."""
    told = known("matmul_chain")
    exam, program = told.exam, told.exam.program
    works = [op.work and replace(op.work, matrix={"fp32": sum(op.work.matrix.values())}) for op in program.ops]
    ops = tuple(
        replace(op, work=work) if op.cls is OpClass.CONTRACTION else op
        for op, work in zip(program.ops, works, strict=True)
    )
    ceilings = replace(exam.ceilings, matmul_flops_per_s=rates)
    return Chart(replace(exam, program=replace(program, ops=ops), ceilings=ceilings), told.subject)


@pytest.mark.parametrize(("name", "mode"), [("bf16-autocast", "bf16"), ("tf32", "tf32")])
def test_another_type_is_for_devices_that_multiply_faster_in_it(name, mode):
    """A Xeon without units for bf16 supports it all the same: 14 GFLOP/s beside 302 in fp32."""
    kind = TREATMENTS[name].kind
    assert kind.forecast(rated(fp32=50e12, **{mode: 400e12}), ("model:",)).high > 1
    with pytest.raises(Unfit, match=r"no units for \w+: .* 14\.2 GFLOP/s in it, at 302 GFLOP/s in fp32"):
        kind.forecast(rated(fp32=302e9, **{mode: 14.2e9}), ("model:",))
    with pytest.raises(Unfit, match="not measured"):
        kind.forecast(rated(fp32=302e9), ("model:",))


def test_fused_optimizer_of_bert_is_promised_what_was_measured():
    """92.6 → 71.7 ms."""
    assert forecast("fused-optimizer", "bert_large").speedup == pytest.approx(92.6 / 71.7, rel=0.15)


def test_compiling_gpt2_is_promised_what_was_measured():
    """67.6 → 26.9 ms, of which padding the vocabulary is a third."""
    assert forecast("compile", "gpt2").speedup == pytest.approx(67.6 / 26.9, rel=0.15)
    blocks = tuple(f"model:transformer.h.{layer}" for layer in range(12))
    regions = TREATMENTS["compile-regions"].kind.forecast(known("gpt2"), blocks)
    assert 1.2 < regions.speedup < 0.75 * forecast("compile", "gpt2").speedup


@pytest.mark.parametrize("calls", [1, 12, 1000])
@pytest.mark.parametrize("exam", ["pointwise_chain", "gpt2", "cpu_chain"])
def test_what_costs_the_host_more_than_it_saves_has_a_worst_and_a_bound_too(exam, calls):
    found = fused_forecast(known(exam), calls=calls, pads=True)
    assert 0 < found.low <= found.speedup <= found.high


def test_entering_compiled_code_too_often_costs_more_than_it_saves():
    once, often, always = (fused_forecast(known("gpt2"), calls=calls, pads=False).speedup for calls in (1, 200, 1000))
    assert once > often > always == 1


def test_where_a_graph_is_replayed_nobody_enters_compiled_code():
    captured = chart("gpt2", plan=(Dose(TREATMENTS["whole-step-graph"], ()),))
    replayed = Chart(graphed_exam(captured.exam, captured.case.busy_s), captured.subject)
    once, always = (fused_forecast(replayed, calls=calls, pads=False) for calls in (1, 1000))
    assert once == always
    assert once.speedup > 1.2


def test_recurrent_layers_are_not_promised_to_be_fused():
    paths = {op.module.partition(".")[2] for op in known("gpt2").ops}
    recurrent = chart("gpt2", modules=lambda: [(f"model:{path}", torch.nn.GRU(2, 2)) for path in paths])
    assert fused_forecast(known("gpt2"), calls=1, pads=False).high > 1.2
    assert fused_forecast(recurrent, calls=1, pads=False).high == 1


def test_products_of_recurrent_layers_are_not_promised_to_be_generated():
    told, tuned = known("llama_decode"), TREATMENTS["compile-tuned"].kind
    paths = {op.module.partition(".")[2] for op in told.ops}
    recurrent = chart("llama_decode", modules=lambda: [(f"model:{path}", torch.nn.GRU(2, 2)) for path in paths])
    assert tuned.forecast(told, ("step",)).high > 1.2
    assert tuned.forecast(recurrent, ("step",)).high < 1.1
    uncompiled = replace(told.exam, dispatched=())
    with pytest.raises(Unfit, match="few of its products"):
        tuned.sites(Chart(uncompiled, recurrent.subject))


def test_in_one_of_twelve_blocks_a_twelfth_can_be_fused():
    one, every = (
        known("gpt2").fusable_s(lambda op, block=block: block in op.module)
        for block in (".transformer.h.3.", ".transformer.h.")
    )
    assert one == pytest.approx([seconds / 12 for seconds in every], rel=0.1)


def test_fusing_bert_and_gpt2_is_promised_what_it_gained_where_the_host_was_out_of_the_way():
    """Captured before it was compiled: 34.1 → 25.5 ms, and 45.5 → 18.9 ms, some of it in products."""
    bert_s, gpt2_s = (known(name).fusable_s(is_compiled)[0] for name in ("bert_large", "gpt2"))
    assert bert_s == pytest.approx(8.64e-3, rel=0.1)
    assert gpt2_s == pytest.approx(26.6e-3, rel=0.15)


def test_compiling_the_patient_is_promised_most_of_what_it_gained_and_its_bound_is_one():
    """65.9 → 12.9 ms: in bf16, with its optimizer fused and its products padded, attention still spelled out."""
    found = forecast("compile", "everything_padded")
    assert found.speedup == pytest.approx(65.9 / 12.9, rel=0.3)
    assert found.low < 65.9 / 12.9 < found.high


def test_what_follows_a_product_is_a_kernel_of_its_own_for_a_compiler_and_free_at_best():
    likely_s, most_s = known("bert_large").fusable_s(is_compiled)
    assert likely_s < 0.8 * most_s


def test_a_graphed_decode_has_nothing_more_to_gain_by_a_graph():
    assert forecast("whole-step-graph", "llama_decode").speedup < 1.02


def projections(layers: int = 22) -> tuple[str, ...]:
    groups = ("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj"))
    return tuple(
        "+".join(f"model:model.layers.{layer}.{block}.{name}" for name in names)
        for layer in range(layers)
        for block, names in groups
    )


def test_merging_the_projections_of_a_decoded_token_saves_what_their_kernels_take_above_their_floors():
    """A layer's q, k, v take 5.5, 5.3 and 5.3 µs for 1.9, 0.2 and 0.2 µs of bytes; gate and up 8 and 8.4 for 5.3."""
    found, step_s = TREATMENTS["merged-projections"].kind.forecast(known("llama_decode"), projections()), 1748e-6
    saved_s = 22 * (3.6 + 5.1 + 2.7) * 1e-6
    assert found.speedup == pytest.approx(step_s / (step_s - saved_s), rel=0.03)
    assert found.speedup < found.high < 1.5


def test_of_products_that_nobody_claims_each_size_but_one_is_promised_the_shortest_kernel():
    """Of q, k and v the last two are of one size, and so are gate and up: generated, these share a kernel already."""
    graphed = known("llama_decode")
    nameless = replace(graphed.exam, kernels=tuple(replace(one, fused_from=None) for one in graphed.exam.kernels))
    found = TREATMENTS["merged-projections"].kind.forecast(Chart(nameless, graphed.subject), projections())
    shortest_s = graphed.exam.ceilings.shortest_kernel_class_s["gemm"]
    likely_s, most_s = 22 * shortest_s, 22 * (3 + 2) * shortest_s
    assert found.speedup == pytest.approx(graphed.exam.step_s / (graphed.exam.step_s - likely_s), rel=0.01)
    assert found.high == pytest.approx(graphed.exam.step_s / (graphed.exam.step_s - most_s), rel=0.01)


def test_int8_weights_of_a_decoded_token_promise_half_of_their_bytes():
    """2.07 GB of weights in products take 0.47 ms at the measured bandwidth: at 75 %, 0.18 ms of 1.75 are saved."""
    sites = tuple(name for group in projections() for name in group.split("+"))
    sites += tuple(
        f"model:model.layers.{layer}.{name}" for layer in range(22) for name in ("self_attn.o_proj", "mlp.down_proj")
    )
    found = TREATMENTS["int8-weight-only"].kind.forecast(known("llama_decode"), (*sites, "model:lm_head"))
    assert found.speedup == pytest.approx(1.748 / (1.748 - 0.18), rel=0.03)


def test_where_generated_kernels_do_not_say_whose_product_they_compute_int8_promises_the_bytes_all_the_same():
    told = known("llama_decode")
    nameless = replace(told.exam, kernels=tuple(replace(one, fused_from=None) for one in told.exam.kernels))
    kind = TREATMENTS["int8-weight-only"].kind
    sites = tuple(name for group in projections() for name in group.split("+"))
    named, unnamed = (kind.forecast(Chart(exam, told.subject), sites) for exam in (told.exam, nameless))
    assert unnamed.speedup == pytest.approx(named.speedup, rel=0.02)
    assert 1 < unnamed.speedup < named.high < unnamed.high
    cached = replace(nameless, ceilings=replace(told.exam.ceilings, dram_bytes_per_s=1.0))
    assert kind.forecast(Chart(cached, told.subject), sites).high < 2


def test_int8_promises_the_bytes_of_nameless_products_beside_those_that_are_named():
    told, kind = known("llama_decode"), TREATMENTS["int8-weight-only"].kind
    sites = tuple(name for group in projections() for name in group.split("+"))
    is_mlp = {place for place, op in enumerate(told.ops) if ".mlp." in op.module}
    half = tuple(
        replace(one, fused_from=None) if is_mlp.intersection(one.fused_from or ()) else one for one in told.exam.kernels
    )
    named, some = (
        kind.forecast(Chart(exam, told.subject), sites) for exam in (told.exam, replace(told.exam, kernels=half))
    )
    assert some.speedup == pytest.approx(named.speedup, rel=0.02)


def test_what_merged_layers_ask_for_several_times_is_promised_once():
    told, kind = known("llama_decode"), TREATMENTS["int8-weight-only"].kind
    kernels = tuple(replace(one, fused_from=None) for one in told.exam.kernels)
    thrice = replace(told.exam.program, ops=told.ops * 3)
    once, again = (
        kind.forecast(Chart(replace(told.exam, kernels=kernels, program=program), told.subject), projections(2))
        for program in (told.exam.program, thrice)
    )
    assert once == again


def test_both_ways_to_multiply_in_int8_are_weighed_where_kernels_are_nameless_and_exclude_each_other():
    told, dynamic = known("llama_decode"), TREATMENTS["int8-dynamic"]
    nameless = replace(told.exam, kernels=tuple(replace(one, fused_from=None) for one in told.exam.kernels))
    sites = [f"model:{op.module.partition('.')[2]}" for op in told.ops if op.cls is OpClass.CONTRACTION]
    unnamed, named = (dynamic.kind.forecast(one, sites).high for one in (Chart(nameless, told.subject), told))
    assert unnamed > named > 1
    assert 1 < dynamic.kind.forecast(told, sites[-1:]).high < named
    assert dynamic.kind.forecast(told, ()).high == 1, "products of others, as of convolutions, stay what they are"
    assert dynamic.group == TREATMENTS["int8-weight-only"].group == "int8"


def test_on_a_cpu_a_generated_step_is_one_function_that_the_host_asks_for_once():
    on_cuda, on_cpu = (chart("llama_decode", device=device) for device in ("cuda:0", "cpu"))
    kernels = len(on_cuda.fused_groups(lambda op: op.phase is not Phase.OPTIMIZER))
    ops = on_cuda.ops
    saved_s = [compiled_host_s(on_cuda, ops, kernels=number, calls=1) for number in (1, kernels)]
    assert saved_s[0] - saved_s[1] == pytest.approx((kernels - 1) * COMPILED * on_cuda.case.dispatch_s)
    tuned = TREATMENTS["compile-tuned"].kind
    steps_s = (1.0,)
    waiting = [  # for the host alone, as good as
        Chart(replace(one.exam, window_step_s=steps_s, serial=True), one.subject) for one in (on_cpu, on_cuda)
    ]
    assert tuned.forecast(waiting[0], ("step",)).speedup > tuned.forecast(waiting[1], ("step",)).speedup > 1


def test_generated_products_are_bound_by_the_compulsory_floor_where_weights_may_still_be_in_the_cache():
    told, tuned = known("llama_decode"), TREATMENTS["compile-tuned"].kind
    cached = replace(told.exam.ceilings, cache_bytes=1 << 40)
    roomy = Chart(replace(told.exam, ceilings=cached), told.subject)
    floor_s = sum(one.seconds for one in told.fused_groups(lambda _: True))
    assert 1 < tuned.forecast(told, ("step",)).high <= told.exam.step_s / floor_s
    assert tuned.forecast(roomy, ("step",)).high > told.exam.step_s / floor_s


def test_beside_recurrent_layers_generated_products_are_bound_by_their_own_compulsory_floor():
    told, tuned = known("llama_decode"), TREATMENTS["compile-tuned"].kind
    paths = {op.module.partition(".")[2] for op in told.ops}
    recurrent = chart(
        "llama_decode",
        modules=lambda: [(f"model:{path}", torch.nn.GRU(2, 2)) for path in paths if ".layers.3." not in f".{path}."],
    )
    seen = seen_by_compilers(recurrent)
    own_s, floor_s = recurrent.compulsory_s(seen), sum(one.seconds for one in recurrent.fused_groups(seen))
    assert 0 < own_s < floor_s < told.compulsory_s(lambda _: True)
    took_s = told.case.busy_s - sum(one.seconds for one in told.kernels(lambda op: not seen(op)))
    step_s, found = told.exam.step_s, tuned.forecast(recurrent, ("step",))
    assert found.high == pytest.approx(step_s / (step_s - (took_s - own_s)), rel=1e-3)


def test_the_compulsory_floor_of_a_part_is_that_of_its_own_weights():
    told = known("llama_decode")
    whole_s, layer_s, none_s = (
        told.compulsory_s(inside) for inside in (lambda _: True, lambda op: ".layers.3." in op.module, lambda _: False)
    )
    assert none_s == 0
    assert layer_s < whole_s / 10


@pytest.mark.parametrize(
    ("name", "shape", "narrow"),
    [
        ("aten::addmm", (1, 1000), True),
        ("aten::mm", (1, 1, 8), True),
        ("aten::mm", (1, 1), True),
        ("aten::mm", (1000, 1), False),
        ("aten::convolution", (1, 1000, 1, 1), False),
        ("aten::bmm", (8, 1, 64), False),
        ("aten::_scaled_dot_product_flash_attention", (2, 8, 1, 64), True),
        ("aten::_scaled_dot_product_flash_attention", (2, 8, 4, 64), False),
        ("aten::dot", (), False),
    ],
)
def test_products_of_one_row_and_attention_of_one_query_are_generated(name, shape, narrow):
    outputs = (TensorRef(0, 0, shape, (0,) * len(shape), "bf16"),)
    assert is_narrow(SimpleNamespace(cls=OpClass.CONTRACTION, name=name, outputs=outputs)) == narrow


def test_below_a_graph_the_host_has_nothing_to_give():
    """What fusing gains then is the device's alone."""
    eager = known("bert_large")
    graphed = Chart(graphed_exam(eager.exam, 0.0415), eager.subject)
    assert graphed.case.limiter == "device"
    found = TREATMENTS["fused-optimizer"].kind.forecast(graphed, ("0",))
    took_s = sum(one.seconds for one in graphed.kernels(lambda op: op.phase is Phase.OPTIMIZER))
    assert found.high < 0.0415 / (0.0415 - took_s)


@pytest.mark.parametrize(
    ("name", "exam", "why"),
    [
        ("compile", "bert_large_compiled", "compiled already"),
        ("compile-tuned", "gpt2", "few of its products"),
        ("no-grad", "gpt2", "the step trains"),
        ("merged-projections", "gpt2", "only for inference"),
        ("merged-projections", "llama_decode", "only a compiler computes once"),
        ("int8-weight-only", "llama_decode", "only compile-tuned"),
    ],
)
def test_what_does_not_fit_says_why(name, exam, why):
    with pytest.raises(Unfit, match=why):
        TREATMENTS[name].kind.sites(known(exam))


def test_a_step_that_waits_for_the_device_is_not_captured():
    with pytest.raises(Unfit, match="waits for the device"):
        TREATMENTS["whole-step-graph"].kind.sites(chart("tiny_with_sync", optimizers=[]))


@pytest.mark.parametrize("rows", [2, 92, 8192])
def test_weights_of_products_with_more_rows_than_one_stay_as_they_are(rows):
    model = torch.nn.Linear(2, 2)
    plan = (SimpleNamespace(treatment=TREATMENTS["compile-tuned"]),)
    subject = SimpleNamespace(device="cuda:0", plan=plan, modules=lambda: [("model:head", model)])
    outputs = (SimpleNamespace(numel=2 * rows, shape=(rows, 2)),)
    op = SimpleNamespace(cls=OpClass.CONTRACTION, module="Model.head", outputs=outputs, phase=Phase.FORWARD)
    made = SimpleNamespace(trains=False, is_cuda=True, subject=subject, ops=(op,))
    with pytest.raises(Unfit, match=f"have {rows} rows, not one"):
        TREATMENTS["int8-weight-only"].kind.sites(made)


def around_odd_rows(name: str):
    """Of kernels of BERT-large's compiled step, one over its 30522 classes."""
    return next(
        one
        for one in known("bert_large_compiled").case.kernels
        if one.kernel.name.startswith(name) and _gained_s(one, {30522}) != (0, 0)
    )


def test_a_copy_for_the_compilers_own_padding_is_promised_whole():
    copy = around_odd_rows("triton_poi_fused_mm_view")
    assert _gained_s(copy, {30522}) == (copy.seconds, copy.seconds)


def test_a_kernel_that_has_to_stay_is_promised_down_to_its_floor():
    """Also where it writes its gradient padded, as before a head without a bias."""
    own = around_odd_rows("triton_red_fused__log_softmax")
    padded = own.op.outputs[0]._replace(shape=(4096, 30528))
    writing = replace(own, op=replace(own.op, outputs=(padded,)))
    for one in (own, writing):
        likely_s, most_s = _gained_s(one, {30522})
        assert most_s == pytest.approx(one.seconds - one.floor.seconds)
        assert 0 < likely_s < most_s


def test_a_product_is_no_kernel_around_it():
    own = around_odd_rows("triton_red_fused__log_softmax")
    multiplying = replace(own, op=replace(own.op, cls=OpClass.CONTRACTION))
    assert _gained_s(multiplying, {30522}) == (0, 0)
