"""Two networks against each other, with an optimizer each."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
discriminator = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
generating = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
discriminating = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
real, fake = torch.ones(8, 1), torch.zeros(8, 1)
for _ in range(int(sys.argv[1])):
    made = generator(torch.randn(8, 4))
    discriminating.zero_grad()
    told = criterion(discriminator(torch.randn(8, 8)), real) + criterion(discriminator(made.detach()), fake)
    told.backward()
    discriminating.step()
    generating.zero_grad()
    fooled = criterion(discriminator(made), real)
    fooled.backward()
    generating.step()
    print(told.item().hex(), fooled.item().hex())
