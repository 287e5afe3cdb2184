"""Lightning's Trainer: forward and backward run in a closure within the optimizer's step."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, _number):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        print(loss.item().hex())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


steps = int(sys.argv[1])
lightning.seed_everything(0)
loader = DataLoader(TensorDataset(torch.randn(8 * steps, 16), torch.randint(4, (8 * steps,))), batch_size=8)
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), loader)
