"""What every test shares: where GPU tests run, and how hypothesis searches."""

import os

import pytest
from hypothesis import settings

from gobrrr.machine import tiles

# Before anybody imports torch: tests multiply bf16, and a process that dies of it takes all its tests along.
if tiles.are_broken():
    os.environ.setdefault(*tiles.WITHOUT)

# No deadline: how long an example takes says more about the machine's other guests than about the code.
settings.register_profile("local", deadline=None)
# Where nobody can reproduce a lucky find, every run searches the same examples.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needing_gpu and not _has_cuda():
        for item in needing_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_cuda() -> bool:
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()
