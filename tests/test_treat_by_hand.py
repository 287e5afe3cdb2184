"""What is printed for doing the same by hand: it runs, computes the same, and does something."""

import re
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.functional import softmax

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.by_hand import listed, settings_code, written_out
from gobrrr.treat.samples import flat
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.work import compiler_events
from test_treat_treatments import CASES, CUDA_ONLY, dose
from treating import Block, containers, subject, training

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # Dynamo
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
]

STEPS = 3

LOOSE = {
    "bf16-autocast": {"rtol": 0.05, "atol": 0.05},
    "int8-dynamic": {"rtol": 0.05, "atol": 0.05},
    "int8-weight-only": {"rtol": 0.05, "atol": 0.05},
}

TERMINAL = 78
"""Characters of a line between whose ends nothing is broken, with two before it."""


@pytest.fixture(autouse=True)
def _put_back():
    """What a snippet changes for the whole process."""
    limit, precision = torch._dynamo.config.recompile_limit, torch.get_float32_matmul_precision()
    loss = torch.nn.functional.cross_entropy
    torch.compiler.reset()
    counters.clear()
    yield
    torch._dynamo.config.recompile_limit = limit
    torch.set_float32_matmul_precision(precision)
    torch.nn.functional.cross_entropy = loss


def named(found: Subject) -> dict[str, object]:
    """All that a snippet may speak of."""
    optimizers = {f"optimizer{place or ''}": one for place, one in enumerate(found.optimizers)}
    return {**found.models, **optimizers, "step": found.step}


def done(code: str, found: Subject) -> dict[str, object]:
    """Run with no other names than those that its first line speaks of."""
    spoken = re.findall(r"(\w+) is your", code.splitlines()[0])
    names = {name: named(found)[name] for name in spoken}
    exec(compile(code, "by hand", "exec"), names)  # noqa: S102 (that is what is tested)
    return names


def steps_of(found: Subject, step) -> list[torch.Tensor]:
    """Of some, the results, and what the parameters have become that an optimizer changes."""
    results = [one.detach().clone() for _ in range(STEPS) for _, one in flat(step())]
    trained = [one for optimizer in found.optimizers for group in optimizer.param_groups for one in group["params"]]
    return results + [one.detach().clone() for one in trained]


def is_fused(names) -> bool:
    return all(group["fused"] and not group["foreach"] for group in names["optimizer"].param_groups)


def is_compiled(_names) -> bool:
    return counters["stats"]["unique_graphs"] > 0


def has_compiled_blocks(names) -> bool:
    return is_compiled(names) and all(names["model"][place]._compiled_call_impl for place in (0, 1))


def attends_by_one_call(names) -> bool:
    q, k, v = torch.randn(3, 2, 2, 5, 8).unbind()
    mask = torch.randn(5, 5)
    torch.testing.assert_close(names["attend"](q, k, v, mask), softmax(q @ k.mT * 8**-0.5 + mask, -1) @ v)
    return names["attend"](q, k, v).shape == v.shape


def prefers_the_kernel_that_was_chosen(names) -> bool:
    from torch.nn.attention import _cur_sdpa_kernel_backends

    inside = []
    note = partial(_cur_sdpa_kernel_backends, with_priority=True)
    hook = names["model"].encoder.register_forward_hook(lambda *_: inside.extend(note()))
    names["model"](input_ids=torch.arange(12).reshape(2, 6))
    hook.remove()
    return inside[:1] == names["kernels"][:1] == [torch.nn.attention.SDPBackend.MATH]


DID = {
    "fused-optimizer": is_fused,
    "compiled-optimizer": is_compiled,
    "compile": is_compiled,
    "compile-loss": is_compiled,
    "compile-regions": has_compiled_blocks,
    "compile-tuned": lambda names: is_compiled(names) and "forward" in vars(names["model"][1]),
    "no-grad": lambda names: not names["step"]().requires_grad,
    "bf16-autocast": lambda names: names["model"](torch.randn(8, 16)).dtype == torch.bfloat16,
    "channels-last": lambda names: names["model"][0].weight.is_contiguous(memory_format=torch.channels_last),
    "conv-bn-fold": lambda names: isinstance(names["model"][1], torch.nn.Identity),
    "int8-dynamic": lambda names: "quantized" in type(names["model"][0].up).__module__,
    "int8-weight-only": lambda names: names["model"][0].up.forward.args[0].dtype == torch.int8,
    "merged-projections": lambda names: (
        len({one.weight.untyped_storage().data_ptr() for one in names["model"][0].children()}) == 1
    ),
    "padded-products": lambda names: "forward" in vars(names["model"][2]),
    "sdpa-backend": prefers_the_kernel_that_was_chosen,
    "sdpa-rewrite": attends_by_one_call,
    "sdpa-switch": lambda names: names["model"].config._attn_implementation == "sdpa",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_by_hand_the_step_computes_the_same_in_another_way(case):
    twin, found = subject(case.make()), subject(case.make())
    expected = steps_of(twin, twin.step)
    names = done(written_out(dose(case), found), found)
    got = steps_of(found, names.get("step", found.step))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one.to(other.dtype), other, **LOOSE.get(case.treatment, {}))
    assert DID[case.treatment](names)


class TwiceLosing(torch.nn.Module):
    """Has a loss of its own, and leaves another to who calls it."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 24)

    def forward(self, x, right):
        logits = self.head(x)
        return logits, torch.nn.functional.cross_entropy(logits, right)


def losing_twice():
    torch.manual_seed(0)
    model, x, right = TwiceLosing(), torch.randn(8, 16), torch.randint(24, (8,))

    def step():
        logits, loss = model(x, right)
        (loss + torch.nn.functional.cross_entropy(2 * logits, right)).backward()
        return model.head.weight.grad.clone()

    return step


def test_by_hand_losses_in_what_is_compiled_and_beside_it_are_the_same():
    twin, found = subject(losing_twice()), subject(losing_twice())
    done(written_out(Dose(TREATMENTS["compile"], ("model:", "cross_entropy")), found), found)
    torch.testing.assert_close(found.step(), twin.step())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_in_force_or_not_the_same_is_printed(case):
    found = subject(case.make())
    before = written_out(dose(case), found)
    turn = found.become((dose(case),))
    assert written_out(dose(case), found) == before
    turn.to_before()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_what_is_printed_is_whole_and_no_terminal_breaks_it(case):
    code = written_out(dose(case), subject(case.make()))
    assert code.startswith(f"# {case.treatment}")
    assert "..." not in code.replace("[..., :", "")
    assert "$" not in code
    assert max(map(len, code.splitlines())) <= TERMINAL


ON_A_GPU = (
    ("whole-step-graph", ("step",)),
    ("reduce-overhead", ("step",)),
    ("reduce-overhead", ("model:0", "model:1")),
)


@pytest.mark.parametrize(("name", "sites"), [*ON_A_GPU, ("tf32", ("torch",))])
def test_what_only_a_gpu_runs_is_python(name, sites):
    found = subject(training())
    found.device = "cuda:0"
    code = written_out(Dose(TREATMENTS[name], sites), found)
    compile(code, "by hand", "exec")
    assert max(map(len, code.splitlines())) <= TERMINAL


def test_every_treatment_is_tried_by_hand():
    assert set(DID) | CUDA_ONLY == set(TREATMENTS)


def on_gpu(steps: int):
    """A step that trains on it, warm."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(16, 4)).cuda()
    optimizer, x = torch.optim.AdamW(model.parameters(), lr=1e-2), torch.randn(8, 16, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return subject(step, steps)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch speaks of TF32, and of an empty graph of its own
@pytest.mark.parametrize(("name", "sites"), ON_A_GPU)
def test_graphs_by_hand_train_as_the_step_does(name, sites):
    first = 3 if name == "whole-step-graph" else 0  # steps that come before the graph
    twin, found = on_gpu(2 + first), on_gpu(2)
    names = done(written_out(Dose(TREATMENTS[name], sites), found), found)
    got = steps_of(found, names.get("step", found.step))
    torch.testing.assert_close(got, steps_of(twin, twin.step), rtol=1e-3, atol=1e-4)
    assert isinstance(names.get("graph"), torch.cuda.CUDAGraph) if first else is_compiled(names)


@pytest.mark.gpu
def test_tf32_by_hand_multiplies_nearly_the_same():
    x = torch.randn(256, 256, device="cuda")
    exact = x @ x
    done(written_out(Dose(TREATMENTS["tf32"], ("torch",)), subject_of(lambda: lambda: x @ x)), None)
    assert torch.get_float32_matmul_precision() == "high"
    torch.testing.assert_close(x @ x, exact, rtol=0.05, atol=0.1)


def test_of_two_models_and_optimizers_each_has_its_code():
    models = [torch.nn.Sequential(Block(), Block()) for _ in range(2)]
    optimizers = [torch.optim.AdamW(one.parameters()) for one in models]

    def step():
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(torch.ones(2, 16)).sum().backward()
            optimizer.step()

    found = subject(step)
    names = done(written_out(Dose(TREATMENTS["fused-optimizer"], ("0", "1")), found), found)
    assert all(is_fused({"optimizer": names[name]}) for name in ("optimizer", "optimizer1"))
    code = written_out(Dose(TREATMENTS["padded-products"], ("model:0.up", "model1:1.down")), found)
    names = done(code, found)
    assert "forward" in vars(names["model"][0].up)
    assert "forward" in vars(names["model1"][1].down)
    assert code.count("from functools import partial") == 1


@pytest.mark.parametrize("sites", [("model:",), ("model:0", "model:1")], ids=["model", "blocks"])
def test_what_is_made_of_torchs_own_modules_alone_is_compiled_by_hand_too(sites):
    torch.compiler.reset()
    found, start = subject(containers()), compiler_events.mark()
    right = found.run()
    done(written_out(Dose(TREATMENTS["compile-regions"], sites), found), found)
    torch.testing.assert_close(found.run(), right)
    assert compiler_events.since(start) is not None
    other = deepcopy(found.module("model:"))
    torch.nn.init.zeros_(other[0][0].weight)
    assert not other(found.inputs[0]).allclose(right), "a copy computes with its own weights"


def test_moments_of_an_optimizer_lie_as_its_weights_do():
    from treating import CONVOLUTIONS, convolving

    step, optimizer = convolving(fused=True)
    found = subject(step)
    done(written_out(Dose(TREATMENTS["channels-last"], CONVOLUTIONS), found), found)
    step()
    weight = optimizer.param_groups[0]["params"][0]
    assert optimizer.state[weight]["exp_avg"].stride() == weight.stride() == (27, 1, 9, 3)


BLOCKS = [(f"layer.{i}.{name}",) for i in range(12) for name in ("up", "down")]


@pytest.mark.parametrize(
    "entries",
    [
        [("",)],
        [("head",)],
        [*BLOCKS, ("pooler",)],
        BLOCKS[:2] + BLOCKS[6:],
        [(f"blocks.{i}.mlp.{j}",) for i in range(4) for j in (0, 2)],
        [(f"layer{s}.{i}.conv1", f"layer{s}.{i}.bn1") for s in (1, 2) for i in range(3)],
        [(f"{i}.{i}",) for i in range(4)],
        [(f"odd {{i}}.{i}",) for i in range(4)],
        [(f'a"b\\.{i}',) for i in range(4)],
    ],
)
def test_what_is_listed_are_these_names(entries):
    assert set(eval(listed(entries))) == {one if len(one) > 1 else one[0] for one in entries}  # noqa: S307


def test_blocks_are_one_line():
    assert (
        listed(BLOCKS)
        == '(\n    *(f"layer.{i}.up" for i in range(12)),\n    *(f"layer.{i}.down" for i in range(12)),\n)'
    )


def test_by_hand_too_every_count_of_steps_is_moved():
    """As one would on a GPU, with what a CPU has in its place."""
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.NAdam(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state.update(step=state["step"].double(), mu_product=state["mu_product"].double())
    code = settings_code("optimizer", optimizer, "cuda:0", capturable=True).replace("cuda:0", "cpu")
    exec(code, {"torch": torch, "optimizer": optimizer})  # noqa: S102 (our own)
    counts = [state[key] for state in optimizer.state.values() for key in ("step", "mu_product")]
    assert {count.dtype for count in counts} == {torch.float32}
