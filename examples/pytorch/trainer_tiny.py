"""Transformers' Trainer with a tiny model that is made here, not loaded: it learns to continue a counting sequence."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        ids = torch.tensor([(i + j) % 16 for j in range(12)])
        return {"input_ids": ids, "labels": ids}


def main():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=12, n_embd=32, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        num_train_epochs=6,
        learning_rate=1e-2,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting(320))
    result = trainer.train()
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print(
            f"world {arguments.world_size} steps {result.global_step} learned: {float(losses[-1]) < float(losses[0]) / 2}"
        )


if __name__ == "__main__":
    main()
