"""Four batches a step, mixed precision with a scaler, clipped gradients, batches made by worker processes."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATED = 4


def main() -> None:
    torch.manual_seed(0)
    batches = ACCUMULATED * int(sys.argv[1])
    dataset = TensorDataset(torch.randn(8 * batches, 16), torch.randint(4, (8 * batches,)))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for number, (x, y) in enumerate(loader, 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATED
        scaler.scale(loss).backward()
        print(loss.item().hex())
        if number % ACCUMULATED == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
