"""Random generators and switches are afterwards where they were."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gobrrr.timing.state import preserved
from gobrrr.timing.state.fp32_precision import own_precisions


def test_generators_that_belong_to_everybody_or_to_the_step_go_back():
    own = torch.Generator().manual_seed(1), random.Random(2), np.random.default_rng(3)

    def draw() -> list[float]:
        mine = [torch.rand(1, generator=own[0]).item(), own[1].random(), own[2].random()]
        return [*mine, torch.rand(1).item(), random.random(), np.random.rand()]  # noqa: NPY002

    with preserved(lambda: own):
        first = draw()
        assert draw() != first
    assert draw() == first


SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "grad": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(mode=False)),
    "dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "deterministic": (
        torch.get_deterministic_debug_mode,
        lambda: torch.use_deterministic_algorithms(mode=True, warn_only=True),
    ),
    "anomaly": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda: torch.autograd.set_detect_anomaly(mode=True, check_nan=False),
    ),
    "benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
    ),
    "fp16 reduction": (
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    ),
    "flash": (torch.backends.cuda.flash_sdp_enabled, lambda: torch.backends.cuda.enable_flash_sdp(enabled=False)),
    "matmul precision": (
        lambda: (torch.get_float32_matmul_precision(), own_precisions()),
        lambda: torch.set_float32_matmul_precision("high"),
    ),
    "cudnn tf32": (
        lambda: (torch.backends.cudnn.allow_tf32, own_precisions()),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    ),
    "fp32 precision": (
        own_precisions,
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    ),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("name", SWITCHES)
def test_switches_that_a_step_turns_go_back(name):
    read, turn = SWITCHES[name]
    before = read()
    with preserved(lambda: None):
        turn()
        assert read() != before
    assert read() == before


def test_looking_at_a_switch_does_not_turn_it():
    torch.backends.fp32_precision = "tf32"
    try:
        inherited = torch.backends.cuda.matmul.fp32_precision
        with preserved(lambda: None):
            assert torch.backends.fp32_precision == "tf32"
            assert torch.backends.cuda.matmul.fp32_precision == inherited
        assert torch.backends.fp32_precision == "tf32"
    finally:
        torch.backends.fp32_precision = "none"
