"""What-ifs on counted ops, against the same change made in the model and counted."""

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gobrrr import Workload
from gobrrr.errors import UsageError
from gobrrr.predict.checkpoint import checkpointed
from gobrrr.predict.flash import BACKWARD, FORWARD, flashed
from gobrrr.predict.inputs import Scale, resized
from gobrrr.work.count import count_elsewhere
from gobrrr.work.op import Phase


class Layer(torch.nn.Module):
    def __init__(self, *, fused: bool):
        super().__init__()
        self.projection, self.output = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)
        self.fused = fused

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.projection(x).view(batch, tokens, 3, 4, 64).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v) if self.fused else (q @ k.mT * 0.125).softmax(-1) @ v
        return x + self.output(mixed.transpose(1, 2).reshape(batch, tokens, 256)).relu()


class Model(torch.nn.Module):
    def __init__(self, *, fused: bool = True, checkpoints: bool = False):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 256)
        self.layers = torch.nn.ModuleList(Layer(fused=fused) for _ in range(6))
        self.checkpoints = checkpoints

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        return x


def program(**options: bool):
    def training():
        return Workload(Model(**options).bfloat16(), torch.randint(100, (4, 512)), lambda out: out.float().sum())

    return count_elsewhere(training, traced=False)


def flops(ops) -> float:
    return sum(op.work.matrix_flops for op in ops if op.work)


def test_flash_makes_of_products_and_a_softmax_what_the_fused_op_is():
    ours, theirs = flashed(program(fused=False).ops), program().ops
    for name in (FORWARD, BACKWARD):
        mine, true = ([op for op in ops if op.name == name] for ops in (ours, theirs))
        assert len(mine) == len(true) == 6
        assert flops(mine) == pytest.approx(flops(true))
        assert mine[0].work.bytes == pytest.approx(true[0].work.bytes, rel=0.4)  # row statistics, the output again
    assert not any(ref.numel == 4 * 4 * 512 * 512 for op in ours for ref in (*op.inputs, *op.outputs))


def test_flash_where_there_is_nothing_to_fuse_is_refused():
    with pytest.raises(UsageError, match="changes nothing"):
        flashed(program().ops)


def test_checkpoint_runs_again_and_keeps_what_torch_does():
    """But for the last layer's last products, whose results nobody asks for: torch stops early."""
    plain, true = program(), program(checkpoints=True)
    ours = checkpointed(plain)
    again = [op for op in ours.ops if op.recomputed]
    assert all(op.phase is Phase.BACKWARD for op in again)
    assert flops(ours.ops) == pytest.approx(flops(true.ops), rel=0.05)
    assert ours.memory.peak_bytes == pytest.approx(true.memory.peak_bytes, rel=0.2)
    assert ours.memory.peak_bytes < 0.7 * plain.memory.peak_bytes


def test_checkpoint_needs_layers_that_are_trained():
    inference = count_elsewhere(lambda: (Model(), torch.randint(100, (4, 512))), traced=False)
    with pytest.raises(UsageError, match="trains"):
        checkpointed(inference)


def made(scale: Scale, inputs):
    return resized(lambda: Workload(torch.nn.Identity(), inputs), scale)().inputs


def test_inputs_grow_where_the_batch_and_the_tokens_are():
    ids, mask, image = torch.zeros(4, 6, dtype=torch.long), torch.ones(4, 1, 6, 6), torch.ones(4, 3, 8, 8)
    assert made(Scale(batch=2), (ids, image))[1].shape == (8, 3, 8, 8)
    longer = made(Scale(sequence=1.5), {"ids": ids, "mask": mask})
    assert longer["ids"].shape == (4, 9)
    assert longer["mask"].shape == (4, 1, 9, 9)


def test_only_token_ids_say_how_long_a_sequence_is():
    with pytest.raises(UsageError, match="token ids"):
        made(Scale(sequence=2), torch.ones(4, 3, 8, 8))
    with pytest.raises(UsageError, match="leaves nothing"):
        made(Scale(batch=0.1), torch.ones(4, 3))
