"""transformers' Trainer on a tiny BERT: training with evaluation, saving a checkpoint, resuming from it, predicting."""

import os
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments, set_seed


class Parity(torch.utils.data.Dataset):
    """Sequences of bits, with the parity of the first four as label."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(2, (size, 8), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(8, dtype=torch.long), "labels": int(self.ids[i, :4].sum() % 2)}


def accuracy(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


set_seed(0)
configuration = BertConfig(
    vocab_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=8, num_labels=2
)
with tempfile.TemporaryDirectory() as folder:

    def trainer(steps):
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=16, learning_rate=1e-3, warmup_steps=4, weight_decay=0.01, logging_steps=5,
            eval_strategy="steps", eval_steps=10, save_steps=10, report_to=[], disable_tqdm=True, use_cpu=True, seed=0, log_level="error",
        )  # fmt: skip
        model = BertForSequenceClassification(configuration)
        made = Trainer(model=model, args=arguments, train_dataset=Parity(128, 1), eval_dataset=Parity(64, 2), compute_metrics=accuracy)
        made.remove_callback(PrinterCallback)  # it prints how long everything took
        return made

    def report(trained):
        for entry in trained.state.log_history:
            print(
                {
                    key: value
                    for key, value in entry.items()
                    if key in ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "step")
                }
            )

    first = trainer(20)
    first.train()
    report(first)
    print(sorted(os.listdir(f"{folder}/checkpoint-10")))
    again = trainer(20)
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-10")
    report(again)
    found = first.predict(Parity(16, 3))
    print("predicted", found.predictions.argmax(-1).tolist(), found.metrics["test_loss"])
