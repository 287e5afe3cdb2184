"""A predicted step: two timelines with closed forms, and recorded steps of an H200."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import schema
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import BadInput, UsageError
from gobrrr.exam import Exam
from gobrrr.machine import datasheets
from gobrrr.machine.ceilings import Ceilings
from gobrrr.predict import host as hosts
from gobrrr.predict.accelerator import calibrated, from_datasheet
from gobrrr.predict.anchored import anchored
from gobrrr.predict.cast import cast
from gobrrr.predict.estimate import Estimate
from gobrrr.predict.host import LAUNCH_LATENCY_S, QUEUE, Host, Issued, host_of, simulated
from gobrrr.predict.kernels import NO_KERNEL, Call, Kernel, kernel, product_of
from gobrrr.predict.prediction import machine, prediction
from gobrrr.predict.product import Product
from gobrrr.predict.spread import FITTED, SPREAD, Family, interval, spread
from gobrrr.predict.step import Variant, step, without_unread
from gobrrr.predict.what_if import check, parse
from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.work import Work

EXAMS = Path(__file__).parent / "data" / "exams"
H200 = from_datasheet(datasheets.find("h200-sxm"))


def issued(host_s: float, device_s: float, *, waits: bool = False) -> Issued:
    return Issued(host_s, Kernel(Family.STREAM, Estimate(device_s, 0.0, device_s)), waits)


def ref(*shape: int, dtype: str = "fp32", stride: tuple[int, ...] | None = None) -> TensorRef:
    steps, step_ = [], 1
    for size in reversed(shape):
        steps.append(step_)
        step_ *= size
    return TensorRef(None, 0, shape, stride or tuple(reversed(steps)), dtype)


def op(name: str, cls: OpClass, inputs: list[TensorRef], outputs: list[TensorRef], **work: object) -> Op:
    read, written = (sum(one.nbytes for one in refs) for refs in (inputs, outputs))
    counted = Work(bytes_read=read, bytes_written=written, **work)
    counted_by = CountedBy.FORMULA
    return Op(
        name, cls, Phase.FORWARD, "", None, "cpu", tuple(inputs), tuple(outputs), counted_by, counted, launches=True
    )


def mm(m: int, n: int, k: int, dtype: str = "fp32") -> Op:
    flops = 2.0 * m * n * k
    operands = [ref(m, k, dtype=dtype), ref(k, n, dtype=dtype)]
    return op(
        "aten::mm", OpClass.CONTRACTION, operands, [ref(m, n, dtype=dtype)], matrix={dtype: flops}, flops_dense=flops
    )


@given(st.lists(st.tuples(st.floats(1e-6, 1e-4), st.floats(1e-6, 1e-4)), min_size=1, max_size=50))
def test_steps_back_to_back_take_as_long_as_the_slower_side(pairs):
    lines = simulated([issued(*pair) for pair in pairs])
    host, device = (sum(side) for side in zip(*pairs, strict=True))
    assert lines.step_s >= max(host, device) * 0.999
    assert lines.step_s <= host + device + len(pairs) * LAUNCH_LATENCY_S


def test_a_step_of_one_kind_is_bound_by_one_side():
    assert simulated([issued(1e-5, 1e-6)] * 100).step_s == pytest.approx(1e-3)
    assert simulated([issued(1e-6, 1e-5)] * 100).step_s == pytest.approx(1e-3)


def test_a_wait_adds_host_and_device():
    """Each of 10 times the host issues for 1 ms, and waits for a kernel of 1 ms."""
    lines = simulated([issued(1e-3, 1e-3, waits=True)] * 10)
    assert lines.step_s == pytest.approx(20e-3 + 10 * LAUNCH_LATENCY_S)


def test_a_full_queue_holds_the_host_back_without_slowing_the_device():
    lines = simulated([issued(0.0, 1e-6)] * (3 * QUEUE))
    assert lines.step_s == pytest.approx(3e-6 * QUEUE, rel=1e-2)


def test_a_synchronised_step_starts_on_an_idle_device():
    lines = simulated([issued(1e-6, 1e-3)], synchronised=True)
    assert lines.step_s == pytest.approx(1e-6 + LAUNCH_LATENCY_S + 1e-3)


def test_views_take_no_device_time():
    view = replace(mm(8, 8, 8), launches=False)
    assert kernel(view, None, H200) is NO_KERNEL


def test_shares_add_to_the_step():
    found = step([mm(512, 512, 512, "bf16")] * 20, H200, Host())
    assert found.compute_s + found.bandwidth_s + found.overhead_s == pytest.approx(found.step_s)
    assert sum(found.family_s.values()) == pytest.approx(found.step_s)


def test_a_graph_takes_the_host_away_and_nothing_else():
    ops = [mm(64, 64, 64, "bf16")] * 50
    eager, graphed = step(ops, H200, Host()), step(ops, H200, Host(), Variant.GRAPHED)
    assert graphed.device_s == eager.device_s
    assert graphed.step_s < eager.step_s / 5


def test_compiling_pointwise_chains_moves_fewer_bytes():
    """Three ops on a gigabyte: three round trips through memory in eager mode, one when fused."""
    names = iter(range(100))

    def tensor(number: int) -> TensorRef:
        return ref(1 << 28)._replace(storage=number)

    first = next(names)
    chain = []
    for _ in range(3):
        second = next(names)
        chain.append(op("aten::mul.Tensor", OpClass.ELEMENTWISE, [tensor(first)], [tensor(second)]))
        first = second
    ratio = step(chain, H200, Host()).step_s / step(chain, H200, Host(), Variant.COMPILED).step_s
    assert ratio == pytest.approx(3, rel=0.05)


def test_a_compiler_writes_no_result_that_nobody_reads():
    """A pool gives maxima and their places, of eight bytes each; in inference nobody asks for those."""
    image, pooled, places = ref(64, 8)._replace(storage=1), ref(64, 4)._replace(storage=2), ref(64, 4, dtype="int64")
    pool = op("aten::max_pool2d_with_indices", OpClass.OTHER, [image], [pooled, places._replace(storage=3)])
    (kept,) = without_unread([pool])
    assert kept.outputs == (pooled,)
    assert kept.work.bytes_written == pooled.nbytes
    reads = op("aten::max_pool2d_with_indices_backward", OpClass.OTHER, [places._replace(storage=3)], [image])
    assert without_unread([pool, reads])[0] == pool


def test_torch_compile_leaves_the_optimizer_as_it_was():
    stepped = replace(mm(64, 64, 64), phase=Phase.OPTIMIZER)
    host = Host()
    alone = step([stepped] * 20, H200, host)
    compiled = step([mm(64, 64, 64), *[stepped] * 20], H200, host, Variant.COMPILED)
    assert compiled.host_s > alone.host_s


def test_without_an_optimizer_that_goes_from_parameter_to_parameter_bert_is_as_much_faster_as_was_measured():
    """92.6 → 71.7 ms with the fused one, which reads no number from the host."""
    ops = schema.read(Exam, EXAMS / "bert_large.json.gz").program.ops
    fused = [op for op in ops if not (op.phase is Phase.OPTIMIZER and "_local_scalar_dense" in op.name)]
    assert len(ops) - len(fused) == 2 * 394
    plain_s, fused_s = (step(some, H200, host_of(H200)).host_s for some in (ops, fused))
    assert fused_s / plain_s == pytest.approx(71.7 / 92.6, rel=0.05)


def test_what_goes_into_compiled_code_costs_the_host_by_the_piece():
    """Parameters and the batch; not what was computed on the way."""
    given_, middle, weights = (
        ref(4)._replace(storage=1),
        ref(4)._replace(storage=2),
        [ref(4)._replace(storage=i) for i in range(3, 13)],
    )
    forward = [
        op("aten::mul", OpClass.ELEMENTWISE, [given_ if i == 0 else middle, one], [middle])
        for i, one in enumerate(weights)
    ]
    backward = [replace(one, phase=Phase.BACKWARD) for one in forward]
    assert hosts.leaves([*forward, *backward]) == 11
    assert hosts.entering_s(forward, calls=2) == pytest.approx(2 * hosts.ENTERING_S + 11 * hosts.LEAF_S)
    trained_s = hosts.ENTERING_TRAINED_S + 11 * hosts.LEAF_TRAINED_S
    assert hosts.entering_s([*forward, *backward]) == pytest.approx(trained_s)


def test_modes_of_torch_compile_are_variants():
    assert Variant.of_modes([]) is Variant.EAGER
    assert Variant.of_modes(["default", "max-autotune-no-cudagraphs"]) is Variant.COMPILED
    assert Variant.of_modes(["default", "reduce-overhead"]) is Variant.COMPILED_GRAPHED


def test_halved_precision_can_be_slower():
    """ResNet-50 on a V100 at batch 1: 10.3 ms in fp32 and 12.8 under autocast, whose casts are ops too."""
    ops = [mm(64, 64, 64)] * 50
    casts = [op("aten::_to_copy", OpClass.MOVEMENT, [ref(64, 64)], [ref(64, 64, dtype="fp16")])] * 50
    assert step([*cast(ops, "fp16"), *casts], H200, Host()).step_s > step(ops, H200, Host()).step_s


def test_a_product_is_read_off_its_operands():
    assert product_of(Call.of(mm(96, 64, 32, "bf16"))) == Product(96, 64, 32, 1, "bf16", 8)
    assert product_of(Call.of(mm(96, 50257, 32, "bf16"))).alignment == 1


def test_other_contractions_keep_their_flops():
    flops = 2.0 * 100 * 100 * 100
    odd = op("aten::strange", OpClass.CONTRACTION, [ref(7)], [ref(3)], matrix={"fp32": flops}, flops_dense=flops)
    assert product_of(Call.of(odd)).flops == pytest.approx(flops, rel=0.02)


def test_tf32_moves_as_many_bytes_and_bf16_half_of_them():
    (plain,), (tf32,), (bf16,) = ([mm(64, 64, 64)], cast([mm(64, 64, 64)], "tf32"), cast([mm(64, 64, 64)], "bf16"))
    assert tf32.work.bytes == plain.work.bytes
    assert tf32.work.matrix == {"tf32": plain.work.matrix_flops}
    assert bf16.work.bytes == plain.work.bytes / 2
    assert bf16.work.matrix == {"bf16": plain.work.matrix_flops}


@given(st.dictionaries(st.sampled_from(Family), st.floats(1e-6, 1), min_size=1))
def test_an_interval_holds_its_step_and_is_no_narrower_than_what_software_changes(seconds):
    total = sum(seconds.values())
    low, high = interval(seconds, total, H200.name)
    assert low < total < high
    assert total / low == pytest.approx(high / total)
    assert 1.1 < high / total < 1.1 + max(SPREAD[family].unseen for family in seconds) * 1.3


def test_short_kernels_are_less_certain():
    assert spread(Family.PRODUCT, 1.0, H200.name) == pytest.approx(SPREAD[Family.PRODUCT].unseen, rel=1e-4)
    assert spread(Family.PRODUCT, 2e-6, H200.name) > 0.5


@pytest.mark.parametrize("family", Family)
def test_an_accelerator_that_no_constant_saw_is_less_certain(family):
    for fitted in FITTED[family]:
        assert datasheets.find(fitted) is not None
        assert spread(family, 1.0, fitted) <= spread(family, 1.0, "unheard-of")


@pytest.mark.parametrize("name", ["bert_large", "gpt2"])
def test_recorded_steps_of_an_h200_are_predicted_from_the_datasheet(name):
    """Within a quarter of what was measured, with the right limiter. The host's cost per op was taken from them."""
    exam = schema.read(Exam, EXAMS / f"{name}.json.gz")
    found = prediction(exam.program.ops, exam.program.memory, step(exam.program.ops, H200, host_of(H200)), H200)
    assert found.step_s == pytest.approx(exam.step_s, rel=0.25)
    assert found.device_s == pytest.approx(sum(one.seconds for one in exam.kernels), rel=0.25)
    assert found.limiter == {"bert_large": "host", "gpt2": "device"}[name]
    assert found.low_s < exam.step_s < found.high_s
    assert found.fits


RECORDED = ["bert_large", "gpt2", "llama_decode", "matmul_chain", "pointwise_chain", "tiny_with_sync"]


@pytest.mark.parametrize("name", RECORDED)
def test_a_predicted_step_is_of_the_regime_that_was_recorded(name):
    """Within 12 points of each share: what a kernel takes above its floor counts for its regime in both."""
    exam = schema.read(Exam, EXAMS / f"{name}.json.gz")
    variant = Variant.COMPILED_GRAPHED if name == "llama_decode" else Variant.EAGER
    found = prediction(exam.program.ops, None, step(exam.program.ops, H200, host_of(H200), variant), H200)
    seen = diagnose(exam)
    assert found.regime == seen.regime
    for regime in ("compute", "bandwidth", "overhead"):
        assert found.shares[regime] == pytest.approx(seen.shares[regime], abs=0.12)


@pytest.mark.parametrize("variant", Variant)
def test_a_step_of_tiny_products_is_overhead_however_it_is_issued(variant):
    """What a product takes that has next to nothing to do is latency, and no arithmetic."""
    ops = schema.read(Exam, EXAMS / "tiny_with_sync.json.gz").program.ops
    assert prediction(ops, None, step(ops, H200, host_of(H200), variant), H200).regime == "overhead"


@pytest.mark.parametrize("name", [one for one in RECORDED if one != "llama_decode"])
def test_an_exam_scaled_to_its_own_machine_is_itself(name):
    exam = schema.read(Exam, EXAMS / f"{name}.json.gz")
    found = anchored(exam, H200)
    assert found.step_s == pytest.approx(exam.step_s, rel=0.02)
    assert found.device_s == pytest.approx(sum(one.seconds for one in exam.kernels))


def test_an_exam_scaled_to_half_the_bandwidth_takes_twice_as_long():
    exam = schema.read(Exam, EXAMS / "pointwise_chain.json.gz")
    half = replace(H200, dram_bytes_per_s=H200.dram_bytes_per_s / 2)
    assert anchored(exam, half).device_s == pytest.approx(2 * anchored(exam, H200).device_s, rel=0.1)


def test_an_exam_of_an_unlisted_card_is_refused():
    exam = schema.read(Exam, EXAMS / "gpt2.json.gz")
    with pytest.raises(BadInput, match="no datasheet"):
        anchored(replace(exam, ceilings=replace(exam.ceilings, device="NVIDIA X9000")), H200)


def test_ceilings_take_the_place_of_the_sheet():
    measured = Ceilings(
        device="NVIDIA H200", kind="cuda", threads=1, measured_at="2026-01-01T00:00:00+00:00",
        matmul_flops_per_s={"bf16": 7e14}, dram_bytes_per_s=4.3e12, dispatch_s=2e-6,
    )  # fmt: skip
    device, host = machine(datasheets.find("h200-sxm"), [measured])
    assert device.dram_bytes_per_s == 4.3e12
    assert 2e-6 < host.dispatch_s < hosts.DISPATCH_S
    doubtful = replace(measured, dispatch_s=1.4 * hosts.DISPATCH_S)
    assert machine(datasheets.find("h200-sxm"), [doubtful])[1].dispatch_s == hosts.DISPATCH_S
    shape = Product(16384, 16384, 16384)
    one = calibrated(H200, measured)
    from gobrrr.predict.product import tile_rate

    assert tile_rate(shape, 128, 256, one) == pytest.approx(7e14)
    assert machine(datasheets.find("h100-sxm"), [measured])[0].calibrated is False


def test_hosts_are_as_old_as_their_cards():
    old, new = (from_datasheet(datasheets.find(name)) for name in ("p100-pcie-16gb", "h100-sxm"))
    assert hosts.host_of(old).dispatch_s > hosts.host_of(new).dispatch_s == hosts.DISPATCH_S


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch=0x", "above zero"),
        ("batch=2", "batch=2x"),
        ("dtype=int3", "allowed are"),
        ("faster", "allowed are"),
        ("compile=yes", "allowed are"),
        ("power=-3", "above zero"),
        ("", "changes nothing"),
    ],
)
def test_impossible_changes_are_one_sentence(text, sentence):
    with pytest.raises(UsageError, match=sentence):
        parse(text)


def test_several_changes_are_predicted_alone_and_together():
    changes = parse("batch=2x, dtype=bf16,compile")
    assert [change.text for change in changes] == [
        "batch=2x",
        "dtype=bf16",
        "compile",
        "batch=2x + dtype=bf16 + compile",
    ]
    assert changes[-1].batch == 2
    assert changes[-1].variant is Variant.COMPILED


def test_fp8_on_a_v100_is_refused():
    with pytest.raises(UsageError, match="v100-pcie has no fp8"):
        check(parse("dtype=fp8")[0], datasheets.find("v100-pcie"))
