"""Random numbers of compiled code: which ones are drawn, whichever kernel draws them."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.treat.compiling import begun_early_and_waiting, generated_otherwise, patient_compiler
from gobrrr.treat.draws import AT_ONCE, beginning
from gobrrr.treat.edit import swap_off, swap_on

Draw = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

WAIT, LAUNCH = "tl.extra.cuda.gdc_wait()", "tl.extra.cuda.gdc_launch_dependents()"

ALONG, ACROSS = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("along", "across"))


@given(st.integers(0, 3), st.integers(0, 4096), st.integers(0, 64), st.integers(0, 100), st.integers(0, 100))
def test_elements_that_share_a_draw_have_its_four_numbers_between_them(
    step: int, width: int, start: int, row: int, group: int
) -> None:
    place = step * ALONG + width * ACROSS + start
    begins = beginning(place, ALONG)
    if begins is None:
        assert step != 1 or width % AT_ONCE or start % AT_ONCE
        return
    own = [int(place.subs({ALONG: AT_ONCE * group + k, ACROSS: row})) for k in range(AT_ONCE)]
    draw = int(begins.subs(ACROSS, row)) // AT_ONCE + group
    assert own == [AT_ONCE * draw + k for k in range(AT_ONCE)]


def test_a_place_that_bends_along_its_row_shares_no_draw() -> None:
    assert beginning(ALONG**2, ALONG) is None
    assert beginning(ALONG + 768 * sympy.floor(ALONG / 64), ALONG) is None


def test_inductor_writes_kernels_by_methods_of_its_classes_and_gets_them_back() -> None:
    from torch._inductor.codegen.triton import TritonKernel, TritonKernelOverrides, TritonOverrides
    from torch._inductor.scheduler import MixOrderReduction
    from torch.compiler import config

    def there() -> tuple[object, ...]:
        index_expr, rand = vars(TritonKernelOverrides)["index_expr"], vars(TritonOverrides)["rand"]
        assert isinstance(index_expr, classmethod)
        assert isinstance(rand, staticmethod)
        decides = vars(MixOrderReduction)["can_fuse"]
        return index_expr, rand, decides, vars(TritonKernel)["_filter_pdl"], config.cache_key_tag

    before = there()
    assert not list(generated_otherwise("cpu"))
    first, second = swap_on(generated_otherwise("cuda")), swap_on(generated_otherwise("cuda"))
    during = there()
    assert all(one != other for one, other in zip(before, during, strict=True))
    swap_off(first)
    assert there() == during
    swap_off(second)
    assert there() == before


@pytest.mark.parametrize(
    "written", [[], ["tmp0 = tl.load(x)", WAIT, LAUNCH, "tmp1 = tl.load(y)", WAIT, LAUNCH, "store"]]
)
@pytest.mark.parametrize("early", [True, False])
def test_a_kernel_that_begins_early_waits_before_it_touches_anything(written: list[str], early: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.utils import IndentedBuffer

    kernel = SimpleNamespace(GDC_WAIT=WAIT, GDC_LAUNCH=LAUNCH, _enable_pdl_codegen=lambda: early)
    code = IndentedBuffer()
    code.writelines(written)
    edits = swap_on([begun_early_and_waiting()])
    try:
        vars(TritonKernel)["_filter_pdl"](kernel, code)
    finally:
        swap_off(edits)
    lines = code.getvalue().splitlines()
    assert lines.count(LAUNCH) == min(1, written.count(LAUNCH))
    assert lines.count(WAIT) == (1 if early or written else 0)
    assert not early or lines[0] == WAIT


def test_inductor_calls_waiting_and_launching_so() -> None:
    from torch._inductor.codegen.triton import TritonKernel

    assert (TritonKernel.GDC_WAIT, TritonKernel.GDC_LAUNCH) == (WAIT, LAUNCH)
    assert callable(TritonKernel._enable_pdl_codegen)


def philox(seed: int, count: int) -> np.ndarray:
    """Philox 4x32-10 as published (Salmon et al., 2011), draws 0 to `count`: four words each."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    words = [np.arange(count, dtype=np.uint64), *(np.zeros(count, dtype=np.uint64) for _ in range(3))]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        left, right = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            right >> shift ^ words[1] ^ np.uint64(keys[0]),
            right & low,
            left >> shift ^ words[3] ^ np.uint64(keys[1]),
            left & low,
        ]
        keys = [(key + more) & 0xFFFFFFFF for key, more in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return np.stack(words, axis=1).astype(np.uint32)


def test_the_reference_gives_the_published_answer() -> None:
    assert philox(0, 1).tolist() == [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]]


def between_0_and_1(words: np.ndarray) -> np.ndarray:
    """As Triton has it: by the distance from zero of a signed word."""
    signed = words.view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def in_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.rand_like(x)
    return drawn, torch.nn.functional.layer_norm(drawn, x.shape[1:])


def by_themselves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.rand_like(x)
    return drawn, drawn * 2


def in_squares(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Read along rows and written along columns."""
    drawn = torch.rand_like(x)
    return drawn, (drawn.t() + x.t()).contiguous()


@pytest.mark.gpu
@pytest.mark.parametrize("draw", [in_rows, by_themselves, in_squares])
@pytest.mark.parametrize(("rows", "columns"), [(512, 768), (64, 4096), (33, 770), (8192, 4), (5, 3), (1, 1)])
def test_each_place_gets_its_own_word_of_philox(draw: Draw, rows: int, columns: int) -> None:
    x = torch.zeros(rows, columns, device="cuda")
    edits = swap_on(generated_otherwise("cuda"))
    try:
        torch.compiler.reset()
        with patient_compiler():
            compiled = torch.compile(draw)
            compiled(x)
            torch.manual_seed(7)
            drawn, _ = compiled(x)
    finally:
        swap_off(edits)
    torch.manual_seed(7)
    limits = torch.iinfo(torch.int64)
    seed = int(torch.randint(limits.min, limits.max, (1,), device="cuda"))  # as Inductor draws it
    expected = between_0_and_1(philox(seed, -(-drawn.numel() // AT_ONCE)).reshape(-1)[: drawn.numel()])
    np.testing.assert_array_equal(drawn.cpu().numpy().reshape(-1), expected)


def normed(kept: torch.Tensor) -> torch.Tensor:
    """By rows there and back."""
    return torch.nn.functional.layer_norm(kept, kept.shape[1:])


def summed(kept: torch.Tensor) -> torch.Tensor:
    """By rows on the way there, one by one on the way back."""
    return kept.sin().sum(-1, keepdim=True)


@pytest.mark.gpu
@pytest.mark.parametrize("read", [normed, summed])
@pytest.mark.parametrize("columns", [768, 770])
def test_what_is_recomputed_for_a_gradient_drops_what_was_dropped(
    read: Callable[[torch.Tensor], torch.Tensor], columns: int
) -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(7)
    x, weights = (torch.rand(512, columns, device="cuda") + 0.5 for _ in range(2))
    x.requires_grad_()

    def dropped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.nn.functional.dropout(x, 0.5)
        return kept, read(kept)

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return checkpoint(dropped, x, use_reentrant=False)

    edits = swap_on(generated_otherwise("cuda"))
    try:
        torch.compiler.reset()
        with patient_compiler():
            kept, found = torch.compile(step)(x)
            (gradient,) = torch.autograd.grad((found * weights).sum(), x)
    finally:
        swap_off(edits)
    is_kept = (kept != 0).float()
    assert 0.45 < is_kept.mean() < 0.55
    (expected,) = torch.autograd.grad((read(x * is_kept * 2) * weights).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
