"""Findings about bandwidth, each on a made-up patient and on one that is well."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from counting import programmed
from gobrrr.diagnose.fusion import fused_floor
from gobrrr.exam import Exam
from gobrrr.work.op import OpClass, Phase, TensorRef
from test_findings import GPU, found, ran
from test_residency import MiB, Tape, moving

W = GPU.dram_bytes_per_s


def moved_by(
    name: str, *refs: TensorRef, cls: OpClass = OpClass.MOVEMENT, busy_s: float = 1.0, rest_s: float = 4.0
) -> Exam:
    """One op from the first tensors to the last, and a long pointwise one that has nothing to do with it."""
    tape = Tape()
    tape.op(name, cls, refs[:-1], refs[-1:])
    other = tape.tensor(64 * MiB)._replace(storage=99)
    tape.op("exp", OpClass.ELEMENTWISE, [other], [other._replace(storage=98)])
    return ran(tape.program, [busy_s, rest_s])


def tensor(*shape: int, dtype: str = "fp32", stride: tuple[int, ...] | None = None, storage: int = 1) -> TensorRef:
    ref = Tape().tensor(*shape, dtype=dtype)._replace(storage=storage)
    return ref if stride is None else ref._replace(stride=stride)


# Casts and copies


def test_casts_are_at_stake_in_full():
    one = found(moved_by("_to_copy", tensor(64, dtype="fp32"), tensor(64, dtype="bf16", storage=2)))["B204"]
    assert one.device_seconds == one.seconds_at_stake == pytest.approx(1.0)
    assert one.evidence[0] == "1 casts take 1.00 s, 20.0 % of busy time"


def test_copies_are_at_stake_in_full():
    one = found(moved_by("cat", tensor(64), tensor(8, storage=3), tensor(72, storage=2)))["B205"]
    assert one.device_seconds == pytest.approx(1.0)
    assert one.evidence[0] == "1 copies take 1.00 s, 20.0 % of busy time"


def test_a_cast_is_no_copy_and_a_copy_no_cast():
    cast = moved_by("_to_copy", tensor(64, dtype="fp32"), tensor(64, dtype="bf16", storage=2))
    copy = moved_by("clone", tensor(64), tensor(64, storage=2))
    assert "B205" not in found(cast)
    assert "B204" not in found(copy)


@pytest.mark.parametrize("name", ["_to_copy", "cat"])
def test_a_few_percent_of_casts_and_copies_are_life(name):
    dtype = "bf16" if name == "_to_copy" else "fp32"
    made = moved_by(name, tensor(64), tensor(64, dtype=dtype, storage=2), rest_s=20.0)
    assert {"B204", "B205"}.isdisjoint(found(made))


def test_integers_that_become_numbers_are_no_casts():
    assert "B204" not in found(moved_by("_to_copy", tensor(64, dtype="int64"), tensor(64, storage=2)))


def test_filling_memory_copies_nothing():
    tape = Tape()
    tape.op("zeros_like", OpClass.MOVEMENT, [], [tape.tensor(64)])
    assert "B205" not in found(ran(tape.program, [1.0]))


# Strides

BIG = (1024, 1024)


def added(other: TensorRef, efficiency: float) -> Exam:
    """A sum of 1024 × 1024 numbers with another operand, at so much of the bandwidth."""
    x, out = tensor(*BIG), tensor(*BIG, storage=3)
    tape = Tape()
    tape.op("add", OpClass.ELEMENTWISE, [x, other], [out])
    return ran(tape.program, [moving([x, other], [out]).bytes / W / efficiency])


def test_a_transposed_operand_loses_what_is_above_the_floor():
    made = added(tensor(*BIG, stride=(1, 1024), storage=2), 0.25)
    one = found(made)["B206"]
    assert one.device_seconds == pytest.approx(0.75 * made.step_s)
    assert one.evidence[0].endswith("at 25 % of the rate")


def test_every_second_element_wastes_half_of_every_line():
    assert "B206" in found(added(tensor(*BIG, stride=(2048, 2), storage=2), 0.25))


@pytest.mark.parametrize(
    ("other", "efficiency"),
    [
        (tensor(*BIG, storage=2), 0.25),
        (tensor(*BIG, stride=(1, 1024), storage=2), 0.8),
        (tensor(1024, stride=(1,), storage=2), 0.25),
        (tensor(*BIG, stride=(0, 1), storage=2), 0.25),
    ],
    ids=["slow for another reason", "fast all the same", "small", "broadcast"],
)
def test_operands_in_one_order_are_not_strided(other, efficiency):
    assert "B206" not in found(added(other, efficiency))


# The loss


def losing(words: int, dtype: str = "fp32", rest_s: float = 0.0) -> Exam:
    """Log-softmax, its gradient and a pass over zeros, of 1024 tokens, at full bandwidth; and a product beside it."""
    tape = Tape()
    logits = tape.tensor(1024, words, dtype=dtype)
    scores, grad, back = (tape.tensor(1024, words, dtype=dtype) for _ in range(3))
    tape.op("_log_softmax", OpClass.NORMALIZATION, [logits], [scores])
    tape.op("nll_loss_backward", OpClass.INDEXING, [], [grad], phase=Phase.BACKWARD)
    reads = [grad, scores]
    tape.op("_log_softmax_backward_data", OpClass.NORMALIZATION, reads, [back], phase=Phase.BACKWARD)
    tape.product(*(tape.tensor(64, 64) for _ in range(2)))
    return ran(tape.program, [*(op.work.bytes / W for op in tape.ops[:3]), rest_s])


def test_a_loss_in_fp32_gains_all_but_three_passes_of_two_bytes():
    """Of 6 passes of 4 bytes."""
    one = found(losing(50304))["B208"]
    assert one.device_seconds == pytest.approx((6 * 4 - 3 * 2) * 1024 * 50304 / W)
    assert one.evidence[0] == "logits of 1024 × 50304 in fp32 are 206 MB"
    assert "3 kernels over them take" in one.evidence[1]


@pytest.mark.parametrize(
    "made",
    [losing(1000), losing(50304, dtype="bf16"), losing(50304, rest_s=1.0)],
    ids=["few classes", "two bytes", "nothing beside the rest"],
)
def test_a_loss_over_small_logits_is_well(made):
    assert "B208" not in found(made)


# Activations


def activated(function) -> Exam:
    x = torch.randn(256, 64)
    first, second = (torch.randn(64, 64, requires_grad=True) for _ in range(2))

    def step() -> None:
        (function(x @ first) @ second).sum().backward()

    program = programmed(step)
    floors = [1e-7 if op.cls is OpClass.CONTRACTION else op.work.bytes / W for op in program.ops if op.launches]
    return ran(program, floors)


def written_out(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.79 * (x + 0.04 * torch.pow(x, 3.0))))


def test_an_activation_in_pieces_keeps_what_it_could_make_again():
    """Kept are x, x/2, tanh and 1 + tanh, beside the result that the next product needs: all but x from x."""
    one = found(activated(written_out))["B209"]
    tensor_bytes = 256 * 64 * 4
    assert one.device_seconds == pytest.approx(2 * 4 * tensor_bytes / W)
    assert one.evidence[0].startswith("256 KiB of ")


def test_a_fused_activation_keeps_its_input_and_result():
    assert "B209" not in found(activated(lambda x: functional.gelu(x, approximate="tanh")))


def test_nothing_is_saved_without_a_backward():
    tape = Tape()
    tape.pointwise(tape.pointwise(tape.tensor(MiB)))
    assert "B209" not in found(ran(tape.program, [1.0, 1.0]))


# Norms


ROWS = 4096


def normed(function, *, fused: bool = False) -> Exam:
    x = torch.randn(ROWS, 1024)
    program = programmed(lambda: function(x))
    launched = [op for op in program.ops if op.launches]
    made = ran(program, [op.work.bytes / W for op in launched])
    if not fused:
        return made
    every = tuple(range(len(program.ops)))
    return replace(made, kernels=(replace(made.kernels[0], seconds=made.step_s, fused_from=every),))


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def test_a_norm_in_pieces_gains_what_moves_between_them():
    """Square 2, mean 1, product 2 passes: a fused one has 2."""
    made = normed(rms)
    one = found(made)["B210"]
    assert one.device_seconds == pytest.approx(3 * ROWS * 1024 * 4 / W, rel=0.05)
    assert one.device_seconds <= found(made)["B201"].device_seconds * (1 + 1e-9), "which counts it too"


def centred(x: torch.Tensor) -> torch.Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def test_a_layer_norm_in_pieces_is_one_too():
    assert "B210" in found(normed(centred))


@pytest.mark.parametrize(
    "made",
    [
        normed(lambda x: functional.layer_norm(x, (1024,))),
        normed(rms, fused=True),
        normed(lambda x: x.sqrt() * x.mean()),
        normed(lambda x: x * x.abs().rsqrt()),
    ],
    ids=["a kernel of its own", "compiled", "a root of all", "a root of each"],
)
def test_what_is_no_norm_in_pieces_is_not_called_one(made):
    assert "B210" not in found(made)


# Attention


def attending(function, took_s: float) -> Exam:
    q, k, v = torch.randn(3, 1, 8, 256, 32)
    program = programmed(lambda: function(q, k, v))
    return ran(program, [took_s] * sum(op.launches for op in program.ops))


def test_attention_by_hand_is_above_the_flash_floor_by_its_scores():
    made = attending(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, 1e-3)
    one = found(made)["B202"]
    assert one.device_seconds == pytest.approx(made.step_s - fused_floor(made.program, GPU).seconds, rel=1e-6)
    assert "B203" not in found(made)


def test_the_kernel_is_well():
    assert {"B202", "B203"}.isdisjoint(found(attending(functional.scaled_dot_product_attention, 1e-6)))
