"""Hugging Face's Trainer on a tiny GPT-2 made up here, two batches a step."""

import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

STEPS = int(sys.argv[1])


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        del args, state, control, kwargs
        if logs and "loss" in logs:
            print(float(logs["loss"]).hex(), float(logs["grad_norm"]).hex())


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(32, (4 * STEPS, 16))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[Losses()])
    trainer.remove_callback(PrinterCallback)  # whose seconds are others in every run
    trainer.train()
