"""The counter: which ops it sees, where it says they come from, and what it assumes of torch."""

import gc
import inspect
import sys
import weakref
from collections import Counter as Tallied
from collections.abc import Callable
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

import gobrrr
from counting import call, launched, named, programmed
from gobrrr.work import autograd_nodes, precision, registry
from gobrrr.work.count import count_workload
from gobrrr.work.counter import Counter
from gobrrr.work.fake import SMALL, fake_tensors, reads_values
from gobrrr.work.op import CountedBy, Op, OpClass, Phase
from gobrrr.work.program import Program
from gobrrr.work.registry import counted, rule_for
from gobrrr.work.storages import Storages
from gobrrr.work.tally import tally
from gobrrr.work.torch_flops import torch_flops
from gobrrr.work.work import Work

aten = torch.ops.aten
HERE = str(Path(__file__).relative_to(Path.cwd())) if Path(__file__).is_relative_to(Path.cwd()) else __file__
WIDTH, CLASSES = 8, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(self.up(self.norm(x)))  # the line of gelu
        return x + self.down(hidden)  # the line of the sum


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(10, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = self.through(block, x)
        return self.head(x)

    def through(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return block(x)


def line_of(function: object, comment: str) -> str:
    """`tests/test_counter.py:38`, found by the comment on it."""
    lines, start = inspect.getsourcelines(function)
    (offset,) = [number for number, line in enumerate(lines) if f"# {comment}" in line]
    return f"{HERE}:{start + offset}"


def training(kind: type[Net] = Net, device: str = "cpu", **options: object):
    """A step of a small model, twice: the first makes the optimizer's state."""
    model = kind().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    ids = torch.zeros(3, 4, dtype=torch.int64, device=device)

    def step() -> None:
        loss = functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step


@pytest.fixture(scope="module")
def trained() -> Program:
    return programmed(training())


def in_phase(program: Program, phase: Phase) -> list[Op]:
    return [op for op in program.ops if op.phase is phase and op.launches]


def flops_dense(ops: list[Op]) -> float:
    return sum(op.work.flops_dense for op in ops if op.work is not None)


def flops_by_module(ops: list[Op]) -> Tallied:
    flops = Tallied()
    for op in ops:
        flops[op.module] += op.work.flops_dense
    return flops


# **** real, meta and fake ****


def looks(op: Op) -> tuple:
    """All of an op but the device and how storages happen to be numbered."""
    shapes = [(ref.shape, ref.stride, ref.dtype) for ref in (*op.inputs, *op.outputs)]
    return op.name, op.cls, op.phase, op.module, op.source, shapes, op.counted_by, op.work, op.launches


@pytest.mark.parametrize(("device", "world"), [("meta", nullcontext), ("cpu", fake_tensors)], ids=["meta", "fake"])
def test_tensors_without_values_give_the_same_ops_and_work_as_real_ones(trained, device, world):
    with world():
        program = programmed(training(device=device))
    assert list(map(looks, program.ops)) == list(map(looks, trained.ops))
    assert program.memory == trained.memory


# **** phases ****


def test_every_op_of_a_step_has_its_phase(trained):
    phases = [op.phase for op in trained.ops]
    assert phases == sorted(phases, key=[Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER].index)
    assert {op.name for op in in_phase(trained, Phase.FORWARD)} >= {"aten::embedding", "aten::addmm", "aten::gelu"}
    assert {op.name for op in in_phase(trained, Phase.BACKWARD)} >= {"aten::mm", "aten::gelu_backward"}
    assert {op.name for op in in_phase(trained, Phase.OPTIMIZER)} >= {"aten::addcdiv_", "aten::sqrt"}


def test_clipping_between_backward_and_optimizer_is_neither():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    program = programmed(step)
    phases = [phase for phase, _ in groupby(op.phase for op in program.ops)]
    assert phases == [Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER]
    assert any("norm" in op.name for op in in_phase(program, Phase.OTHER))


def test_a_pointwise_pass_of_the_optimizer_is_the_optimizers_and_a_product_stays_a_product():
    class Muonlike(torch.optim.SGD):
        def _init_group(self, *args, **kwargs):
            parameter = self.param_groups[0]["params"][0]
            parameter.data @ parameter.data.T
            return super()._init_group(*args, **kwargs)

    model = nn.Linear(4, 3, bias=False)
    optimizer = Muonlike(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    classes = {op.name.partition(".")[0]: op.cls for op in launched(optimizer.step)}
    assert classes == {"aten::mm": OpClass.CONTRACTION, "aten::add_": OpClass.OPTIMIZER}


def test_several_optimizers_are_all_of_the_optimizer_phase():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    one = torch.optim.SGD(model[0].parameters(), lr=0.1)
    other = torch.optim.AdamW(model[1].parameters())

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        one.step()
        other.step()

    names = Tallied(op.name for op in in_phase(programmed(step), Phase.OPTIMIZER))
    assert names["aten::add_.Tensor"] >= 2 + 2
    assert names["aten::addcdiv_"] == 2


def test_an_optimizer_that_steps_inside_the_backward_pass_is_still_the_optimizer():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    program = programmed(lambda: model(torch.ones(2, 4)).sum().backward())
    assert len(in_phase(program, Phase.OPTIMIZER)) == 4
    assert program.ops[-1].phase is Phase.OPTIMIZER
    assert flops_dense(in_phase(program, Phase.BACKWARD)) == flops_dense(in_phase(program, Phase.FORWARD)) * 2 - 2 * 24


def test_accumulated_gradients_are_several_forwards_and_backwards():
    model, x = nn.Linear(4, 3), torch.ones(2, 4)

    def step() -> None:
        for _ in range(3):
            model(x).sum().backward()

    program = programmed(step)
    assert [phase for phase, _ in groupby(op.phase for op in program.ops)] == [Phase.FORWARD, Phase.BACKWARD] * 3
    # The second and third gradients are added to the first: in place, in the module that owns the parameter.
    added = [op for op in in_phase(program, Phase.BACKWARD) if op.name.startswith("aten::add")]
    assert [op.module for op in added] == ["Linear"] * 4


# **** modules and lines ****


def test_a_backward_op_belongs_to_the_module_of_its_forward_op(trained):
    forward, backward = (flops_by_module(in_phase(trained, phase)) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert set(+forward) == {f"Net.blocks.{n}.{part}" for n in (0, 1) for part in ("up", "down")} | {"Net.head"}
    assert backward == Tallied({module: 2 * flops for module, flops in forward.items()}) | Tallied(
        {op.module: 0 for op in in_phase(trained, Phase.BACKWARD)}
    )


@pytest.mark.parametrize(
    ("forward", "backward", "module"),
    [
        ("native_layer_norm", "native_layer_norm_backward", "norm"),
        ("gelu", "gelu_backward", ""),
        ("embedding", "embedding_dense_backward", "tokens"),
        ("_log_softmax", "_log_softmax_backward_data", None),
    ],
)
def test_pairs_of_forward_and_backward_ops_share_module_and_line(trained, forward, backward, module):
    forth = [(op.module, op.source) for op in named(trained.ops, forward)]
    back = [(op.module, op.source) for op in named(trained.ops, backward)]
    assert sorted(forth) == sorted(back)
    if module is None:
        assert {path for path, _ in forth} == {""}
    else:
        assert all(path.endswith(module) for path, _ in forth)


def test_lines_are_those_of_the_users_file(trained):
    gelu, sums = line_of(Block.forward, "the line of gelu"), line_of(Block.forward, "the line of the sum")
    assert {op.source for op in named(trained.ops, "gelu")} == {gelu}
    assert {op.source for op in named(trained.ops, "gelu_backward")} == {gelu}
    assert sums in {op.source for op in named(trained.ops, "add") if op.phase is Phase.FORWARD}


def test_an_op_of_a_module_of_torchs_has_the_line_that_called_the_module(trained):
    sums = line_of(Block.forward, "the line of the sum")
    down = [op for op in named(trained.ops, "addmm") if op.module.endswith("down")]
    assert {op.source for op in down} == {sums}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.linear(x))


def test_a_function_with_a_backward_of_its_own_has_its_module_there_too():
    model = Doubling()
    products = named(programmed(lambda: model(torch.ones(2, 4)).sum().backward()).ops, "mul")
    assert [(op.phase, op.module) for op in products] == [(Phase.FORWARD, "Doubling"), (Phase.BACKWARD, "Doubling")]


def test_modules_and_lines_survive_ops_that_are_taken_apart():
    """In inference mode composite ops reach the counter whole; it takes them apart and must keep its hooks."""
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.ones(2, 4)
    with torch.inference_mode():
        ops = launched(model, x)
    assert [(op.name, op.module) for op in ops] == [
        ("aten::addmm", "Sequential.0"),
        ("aten::relu", "Sequential.1"),
        ("aten::addmm", "Sequential.2"),
    ]


def test_no_hook_is_left_behind_even_by_an_error():
    class Failing(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Counter():
        Failing()(torch.ones(1))
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks


# **** checkpointing ****


class Checkpointed(Net):
    reentrant = False

    def through(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=self.reentrant)


class CheckpointedReentrant(Checkpointed):
    reentrant = True


@pytest.mark.parametrize(("kind", "parts"), [(Checkpointed, ["up"]), (CheckpointedReentrant, ["up", "down"])])
def test_what_checkpointing_runs_again_is_marked_and_the_rest_is_the_plain_model(trained, kind, parts):
    """Without reentrance torch stops as soon as it has what the backward needs: before the block's last product."""
    program = programmed(training(kind))
    again = [op for op in program.ops if op.recomputed]
    rest = [op for op in program.ops if not op.recomputed]
    once = flops_by_module(in_phase(trained, Phase.FORWARD))
    assert {op.phase for op in again} == {Phase.BACKWARD}
    assert flops_dense(again) == sum(once[f"Net.blocks.{number}.{part}"] for number in (0, 1) for part in parts)
    assert flops_dense(rest) == flops_dense(list(trained.ops))
    assert tally(program).recomputed_flops_dense == flops_dense(again)
    assert not any(op.recomputed for op in trained.ops)


@pytest.mark.parametrize("kind", [Checkpointed, CheckpointedReentrant])
def test_checkpointed_ops_keep_their_modules(trained, kind):
    program = programmed(training(kind))

    def backward(ops: tuple[Op, ...]) -> Tallied:
        return flops_by_module([op for op in ops if op.phase is Phase.BACKWARD and not op.recomputed and op.launches])

    def paths(flops: Tallied) -> Tallied:
        return Tallied({module.replace(kind.__name__, "Net"): number for module, number in (+flops).items()})

    assert paths(backward(program.ops)) == +backward(trained.ops)


def test_a_checkpoint_keeps_fewer_bytes_for_the_backward(trained):
    assert programmed(training(Checkpointed)).memory.saved_bytes < trained.memory.saved_bytes


# **** modes ****


def test_casts_of_autocast_are_seen_and_products_are_bf16():
    model = nn.Linear(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        ops = launched(model, torch.ones(2, 4))
    casts = named(ops, "_to_copy")
    assert {op.cls for op in casts} == {OpClass.MOVEMENT}
    assert sum(op.work.bytes for op in casts) == (4 + 2) * (8 + 12 + 3)
    assert named(ops, "addmm")[0].work.matrix == {"bf16": 2 * 2 * 3 * 4}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_ops_and_work_without_gradients_are_those_of_the_forward_pass(mode):
    model, ids = Net(), torch.zeros(3, 4, dtype=torch.int64)

    def seen() -> list:
        return [(op.name, op.module, op.work) for op in launched(model, ids)]

    with mode():
        without = seen()
    assert without == seen()


RECURRENT = nn.GRU(8, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.max_pool2d(x, 2),
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        lambda x: x.square().mean().sqrt(),
        lambda x: x.T.contiguous() if x.dim() == 2 else x.transpose(2, 3).contiguous() + x.contiguous(),
        lambda x: functional.cross_entropy(x.flatten(1), torch.zeros(2, dtype=torch.int64)),
        lambda x: torch.einsum("bchw,bcwv->bhv", x, x),
        lambda x: RECURRENT(x[0]),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.l1_loss(x, x.exp()),
        torch.isfinite,
    ],
    ids="max_pool attention square contiguous cross_entropy einsum GRU interpolate l1_loss isfinite".split(),
)
def test_a_composition_counts_the_same_with_and_without_inference_mode(function):
    x = torch.ones(2, 3, 8, 8)

    def seen(mode: type) -> list:
        with mode():
            return [op.work for op in launched(function, x)]

    assert seen(torch.inference_mode) == seen(torch.no_grad)


@pytest.fixture
def matmul_flags():
    """torch's precision flags, afterwards again as inherited from nowhere: `none` is unset."""
    yield torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.parametrize(("allowed", "mode"), [("tf32", "tf32"), ("ieee", "fp32")])
def test_a_product_on_a_gpu_is_tf32_where_torchs_flags_say_so(matmul_flags, allowed, mode):
    """A fake CUDA tensor needs no CUDA."""
    matmul_flags.fp32_precision = allowed
    with fake_tensors():
        x = torch.empty(8, 8, device="cuda")
        (op,) = launched(torch.matmul, x, x)
    assert op.work.matrix == {mode: 2 * 8**3}
    assert op.device == "cuda:0"


@pytest.mark.usefixtures("matmul_flags")
def test_the_precision_flags_are_read_whichever_way_they_were_set():
    assert not precision.matmul_is_tf32()
    torch.set_float32_matmul_precision("high")
    assert precision.matmul_is_tf32()
    torch.set_float32_matmul_precision("highest")
    assert not precision.matmul_is_tf32()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert precision.matmul_is_tf32()


def test_a_cpu_knows_no_tf32(matmul_flags):
    matmul_flags.fp32_precision = "tf32"
    (op,) = launched(torch.matmul, torch.ones(2, 2), torch.ones(2, 2))
    assert list(op.work.matrix) == ["fp32"]


# **** tensor subclasses, custom ops, unknown ops ****


class Wrapped(torch.Tensor):
    """A tensor around a tensor, as quantized and distributed ones are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = torch.utils._pytree.tree_map_only(Wrapped, lambda tensor: tensor.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Wrapped, func(*inner[0], **inner[1]))


def test_a_wrapper_subclass_unwraps_and_its_inner_ops_are_counted_once():
    plain, other = torch.ones(2, 4), torch.ones(4, 3)
    (op,) = launched(torch.matmul, Wrapped(plain), Wrapped(other))
    (bare,) = launched(torch.matmul, plain, other)
    assert (op.name, op.work) == (bare.name, bare.work)


@pytest.fixture
def swish():
    """An op of somebody's library."""

    @torch.library.custom_op("gobrrr_tests::swish", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    yield op
    registry._rules.pop("gobrrr_tests::swish", None)
    op._lib._destroy()


def test_a_custom_op_is_unknown_and_unknown_is_no_number(swish):
    program = programmed(swish, torch.ones(5))
    (op,) = [op for op in program.ops if op.launches]
    assert (op.counted_by, op.work) == (CountedBy.UNKNOWN, None)
    count = tally(program)
    assert count.coverage == {"formula": 0, "default": 0, "unknown": 1}
    assert count.unknowns == {"gobrrr_tests::swish": 1}
    assert [(row.flops, row.bytes, row.intensity) for row in count.ops] == [(None, None, None)]


def test_a_custom_op_with_a_registered_formula_is_counted_by_it(swish):
    @gobrrr.formula("gobrrr_tests::swish", cls="elementwise")
    def formula(call):
        return counted(call, vector_flops=2 * call.out.numel, vector={"exp": call.out.numel})

    (op,) = launched(swish, torch.ones(5))
    assert (op.counted_by, op.cls) == (CountedBy.FORMULA, OpClass.ELEMENTWISE)
    assert (op.work.flops, op.work.bytes) == (10, 40)


def test_a_users_formula_replaces_ours_whichever_comes_first(monkeypatch):
    ours = rule_for("aten::mm")
    monkeypatch.setitem(registry._rules, "mm", ours)
    for answer in (1, 2):
        gobrrr.formula("aten::mm", cls="contraction")(lambda call, answer=answer: Work(flops_dense=answer))
        assert rule_for("aten::mm").formula(None) == Work(flops_dense=answer)
    registry.formula("aten::mm", cls="contraction")(ours.formula)
    assert rule_for("aten::mm").formula(None) == Work(flops_dense=2)


def test_an_op_of_torchs_without_a_formula_is_counted_by_default_and_listed():
    program = programmed(torch.linalg.qr, torch.ones(4, 3))
    (op,) = named(program.ops, "linalg_qr")
    assert op.counted_by is CountedBy.DEFAULT
    assert (op.work.bytes_read, op.work.bytes_written) == (4 * 12, 4 * (12 + 9))
    assert tally(program).defaults == {"aten::linalg_qr": 1}


def test_an_op_on_a_layout_without_strides_is_unknown():
    sparse = torch.eye(3).to_sparse()
    ops = launched(torch.sparse.mm, sparse, torch.ones(3, 3))
    assert CountedBy.UNKNOWN in {op.counted_by for op in ops}
    assert all(op.work is None for op in ops if op.counted_by is CountedBy.UNKNOWN)


# torch calls its nested tensors a prototype, aloud.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_an_op_on_a_tensor_without_sizes_is_unknown():
    """A padded batch at inference goes through `nn.TransformerEncoder` as a nested tensor."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        ops = launched(lambda: encoder(torch.ones(2, 3, 16), src_key_padding_mask=padding))
    (layer,) = named(ops, "_transformer_encoder_layer_fwd")
    assert (layer.counted_by, layer.work) == (CountedBy.UNKNOWN, None)


def test_an_op_over_functions_is_one_op_that_nobody_knows():
    class Twice(HigherOrderOperator):
        def __init__(self) -> None:
            super().__init__("gobrrr_tests_twice")

        def __call__(self, function, x):
            return super().__call__(function, x)

    twice = Twice()
    twice.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)(lambda function, x: function(function(x)))
    with torch.inference_mode():
        (op,) = launched(twice, torch.exp, torch.ones(5))
    assert (op.name, op.work) == ("higher_order::gobrrr_tests_twice", None)
    assert [ref.shape for ref in (*op.inputs, *op.outputs)] == [(5,), (5,)]


# **** dataflow ****


def test_an_op_reads_the_storage_that_another_wrote(trained):
    produced = set()
    read_from_earlier = 0
    for op in trained.ops:
        read_from_earlier += sum(ref.storage in produced for ref in op.inputs)
        produced.update(ref.storage for ref in op.outputs)
    assert read_from_earlier > len(trained.ops) / 2


def test_the_chain_of_storages_is_the_chain_of_the_program():
    x = torch.ones(5)
    relu, exp, total = launched(lambda: x.relu().exp().sum())
    assert exp.inputs[0].storage == relu.outputs[0].storage
    assert total.inputs[0].storage == exp.outputs[0].storage
    assert len({relu.inputs[0].storage, exp.inputs[0].storage, total.inputs[0].storage}) == 3


def test_a_view_and_an_op_in_place_keep_the_storage():
    x = torch.ones(4, 5)
    program = programmed(lambda: x[1:].T.mul_(2))
    assert len({ref.storage for op in program.ops for ref in (*op.inputs, *op.outputs)}) == 1
    assert program.ops[-1].outputs[0].offset == 5


def test_a_freed_storage_never_lends_its_number_to_another():
    x = torch.ones(1000)

    def step() -> None:
        for _ in range(50):
            x.exp()  # freed at once, and the allocator likes to give the same address again

    outputs = [op.outputs[0].storage for op in launched(step)]
    assert len(set(outputs)) == 50


def test_calls_that_look_alike_but_share_storages_otherwise_are_told_apart():
    """Work is remembered by shapes: x + x and x + y have the same ones and read one and two tensors."""
    x, y = torch.ones(5), torch.ones(5)
    ops = launched(lambda: (x + y, x + x, y + y, x[:4] + x[1:], x + y))
    assert [op.work.bytes_read for op in ops] == [40, 20, 20, 20, 40]


# **** what is assumed of torch ****


class Watching(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes something whenever an op of that name is dispatched."""

    def __init__(self, names: set, note: Callable[[], object]) -> None:
        super().__init__()
        self.names, self.note, self.notes = names, note, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.partition(".")[0] in self.names:
            self.notes.append(self.note())
        return func(*args, **(kwargs or {}))


def test_assumed_a_node_is_made_before_its_op_is_dispatched_and_takes_the_next_number():
    x = torch.ones(3, requires_grad=True)
    with Watching({"exp", "sin"}, autograd_nodes.made_sequence_number) as watching:
        y = x.exp().sin()
    nodes = (y.grad_fn.next_functions[0][0], y.grad_fn)
    assert watching.notes == [autograd_nodes.sequence_number(node) for node in nodes]


def test_assumed_the_running_node_is_known_in_a_backward_and_only_there():
    y = torch.ones(3, requires_grad=True).exp()
    assert autograd_nodes.running_node() is None
    assert not autograd_nodes.in_backward()
    number = autograd_nodes.sequence_number(y.grad_fn)

    def running() -> tuple[bool, int]:
        return autograd_nodes.in_backward(), autograd_nodes.sequence_number(autograd_nodes.running_node())

    with Watching({"mul"}, running) as watching:
        y.backward(torch.ones(3))
    assert watching.notes == [(True, number)]
    assert not autograd_nodes.in_backward()


def test_assumed_the_node_that_accumulates_a_gradient_names_its_parameter():
    parameter = torch.ones(3, requires_grad=True)
    parameter.grad = torch.ones(3)
    with Watching({"add_"}, lambda: autograd_nodes.running_node().variable) as watching:
        (2 * parameter).sum().backward()
    assert watching.notes[0] is parameter


def test_assumed_the_node_of_a_custom_function_is_made_before_its_forward():
    numbers = []

    class Noting(Doubled):
        @staticmethod
        def forward(ctx, x):
            numbers.append(autograd_nodes.made_sequence_number())
            return x * 2

    out = Noting.apply(torch.ones(3, requires_grad=True))
    assert numbers == [autograd_nodes.sequence_number(out.grad_fn)]


def test_assumed_torchs_registry_maps_packets_to_functions_of_shapes_where_a_multiply_add_is_two():
    assert flop_registry[aten.mm]((2, 3), (3, 4), out_val=(2, 4)) == 2 * 2 * 3 * 4
    a, b, out = torch.empty(2, 3), torch.empty(3, 4), torch.empty(2, 4)
    assert torch_flops(call(aten.mm.default, a, b, outputs=[out])) == 48


def test_assumed_torchs_registry_is_silent_on_what_it_does_not_know():
    x = torch.empty(3)
    assert torch_flops(call(aten.exp.default, x, outputs=[x])) is None


@pytest.mark.parametrize(
    "world", [nullcontext, lambda: torch.device("meta"), fake_tensors], ids=["real", "meta", "fake"]
)
def test_assumed_a_storages_object_is_one_and_dies_with_the_storage(world):
    died = []
    with world():
        x = torch.empty(30)
        view = x[3:]
        assert x.untyped_storage() is view.untyped_storage()
        watched = weakref.ref(x.untyped_storage(), died.append)
        del x
        gc.collect()
        assert watched() is not None
        del view
        gc.collect()
    assert watched() is None
    assert len(died) == 1


def test_storages_are_numbered_at_first_sight_and_watched_without_being_held():
    storages, x = Storages(), torch.empty(6)
    assert storages.number(x, Phase.FORWARD, "a", born=1) == storages.number(x[2:], Phase.BACKWARD, "b", born=5) == 0
    storages.now = 7
    del x
    (life,) = storages.lives
    assert (life.nbytes, life.born, life.died, life.phase, life.module) == (24, 1, 7, Phase.FORWARD, "a")


# **** fake tensors ****


UNANSWERED = (DataDependentOutputException, DynamicOutputShapeException, RuntimeError)


def test_assumed_fakes_can_be_built_moved_run_and_stepped():
    with fake_tensors():
        model = Net().to(torch.float64).to(torch.float32)
        nn.init.trunc_normal_(model.head.weight)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.zeros(3, 4, dtype=torch.int64)).sum().backward()
        optimizer.step()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_fake_needs_no_memory():
    with fake_tensors():
        huge = torch.ones(1 << 30, 1 << 20, dtype=torch.float64)
        assert huge.sum().shape == ()


@pytest.mark.parametrize(
    ("question", "op"),
    [
        pytest.param(lambda x: x.sum().item(), "aten._local_scalar_dense.default", id="a number"),
        pytest.param(lambda x: x[x > 0], "aten.nonzero.default", id="as many as are positive"),
        pytest.param(lambda x: x.numpy(), "Tensor.numpy", id="numpy"),
    ],
)
def test_assumed_an_op_whose_result_depends_on_values_raises_and_is_named(question, op):
    with fake_tensors():
        large = torch.randn(SMALL + 1)
        with pytest.raises(UNANSWERED) as caught:
            question(large)
    assert reads_values(caught.value) == op


def test_another_error_is_not_taken_for_a_question():
    assert reads_values(ZeroDivisionError()) is None
    assert reads_values(None) is None


def test_small_values_are_there_to_be_asked():
    with fake_tensors():
        rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
        mask = torch.tensor([True, False])
        assert rates == [0, 0.25, 0.5]
        assert not mask.all()
        assert mask.nonzero().shape == (1, 1)


def test_small_values_that_come_from_something_large_are_not():
    with fake_tensors():
        largest = torch.randn(SMALL + 1).max()
        with pytest.raises(UNANSWERED) as caught:
            largest.item()
    assert reads_values(caught.value) is not None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda small, unknown: small.copy_(unknown), id="in place"),
        pytest.param(lambda small, unknown: small[1:].copy_(unknown), id="in a view of it"),
        pytest.param(lambda small, unknown: torch.neg(unknown.expand(2), out=small), id="as an output"),
        pytest.param(lambda small, unknown: torch._foreach_add_([small], [unknown.expand(2)]), id="among many"),
    ],
)
def test_a_small_value_overwritten_by_an_unknown_one_is_forgotten_not_stale(change):
    with fake_tensors():
        small, unknown = torch.zeros(2), torch.randn(SMALL + 1).max()
        assert small.sum().item() == 0
        change(small, unknown)
        with pytest.raises(UNANSWERED) as caught:
            small.sum().item()
    assert reads_values(caught.value) is not None


def test_fakes_leave_the_users_random_numbers_as_they_were():
    before = torch.get_rng_state()
    with fake_tensors():
        torch.randn(5)
        nn.Linear(3, 3)
        torch.manual_seed(7)
    assert torch.equal(torch.get_rng_state(), before)


def test_fakes_leave_torch_as_it_was():
    swap, draw = torch.utils.swap_tensors, nn.init._no_grad_trunc_normal_
    with fake_tensors():
        pass
    assert torch.utils.swap_tensors is swap
    assert nn.init._no_grad_trunc_normal_ is draw
    assert type(torch.ones(2)) is torch.Tensor


OUTSIDE = torch.tensor([1.0, 2.0, 3.0])


def test_a_real_tensor_from_outside_is_not_changed_by_what_fake_tensors_do_to_it():
    def factory():
        def step():
            OUTSIDE.add_(1)
            assert OUTSIDE.sum().item() > 6

        return step

    count_workload(factory)
    assert OUTSIDE.tolist() == [1.0, 2.0, 3.0]


def test_a_model_that_copies_its_layers_can_be_cast_on_fake_tensors():
    """`nn.TransformerEncoder` deep-copies the layer it is given."""

    def factory():
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(torch.bfloat16)
        return model, torch.randn(2, 4, 16, dtype=torch.bfloat16)

    assert {ref.dtype for op in count_workload(factory).ops for ref in op.outputs} <= {"bf16", "fp32", "bool", "int64"}


def test_a_small_value_changed_by_an_op_that_returns_nothing_is_the_new_one():
    with fake_tensors():
        steps = [torch.tensor(0.0)]
        torch._foreach_add_(steps, 1)
        assert steps[0].item() == 1


def test_a_data_loader_can_be_iterated_on_fake_tensors():
    """It draws its seed into uninitialised memory and looks at it."""
    data = torch.utils.data.TensorDataset(torch.arange(6))
    with fake_tensors():
        assert len(list(torch.utils.data.DataLoader(data, batch_size=2))) == 3


def test_a_second_functional_micro_batch_is_forward_again():
    weight, inputs = torch.ones(3, 3, requires_grad=True), torch.ones(2, 3)
    with Counter() as counter:
        for _ in range(2):
            (inputs @ weight).sum().backward()
    phases = [op.phase for op in counter.program().ops if op.name == "aten::mm"]
    assert phases == [Phase.FORWARD, Phase.BACKWARD] * 2


def test_a_compiled_model_is_counted_as_it_was_written():
    def factory():
        return torch.compile(torch.nn.Linear(4, 4)), torch.ones(2, 4)

    assert [op.name for op in count_workload(factory).ops if op.launches] == ["aten::addmm"]
