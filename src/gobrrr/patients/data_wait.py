"""B105: a step whose batch is decompressed while everybody waits; its twin's was decompressed once."""

import zlib
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from gobrrr.patients.body import DEVICE, products, sized

SAMPLES, NUMBERS = 16, 1 << 18


class Compressed(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.blob = zlib.compress(torch.randn(NUMBERS).numpy().tobytes())

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, place: int) -> torch.Tensor:
        del place
        return torch.frombuffer(bytearray(zlib.decompress(self.blob)), dtype=torch.float32)


def _forever(loader: DataLoader[torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


def _step(loader: DataLoader[torch.Tensor]) -> Callable[[], object]:
    batches, multiply = _forever(loader), products(sized(1, 8))

    def step() -> torch.Tensor:
        batch = next(batches).to(DEVICE)
        multiply()
        return batch.sum()

    return step


def sick() -> Callable[[], object]:
    return _step(DataLoader(Compressed(), batch_size=SAMPLES // 4))


def healthy() -> Callable[[], object]:
    data = Compressed()
    ready = [torch.stack([data[place] for place in range(SAMPLES // 4)]).to(DEVICE) for _ in range(4)]
    return _step(DataLoader(ready, batch_size=None))  # type: ignore[arg-type]
