"""transformers' Trainer on a tiny GPT-2 in two processes of a launcher: training, evaluation, a checkpoint, resuming from it, predicting."""

import os
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments, set_seed


class Counting(torch.utils.data.Dataset):
    """Sequences that count up from somewhere in steps of one to three, modulo the size of the vocabulary."""

    def __init__(self, size, seed, vocabulary=16):
        generator = torch.Generator().manual_seed(seed)
        start, step = (torch.randint(low, high, (size, 1), generator=generator) for low, high in ((0, vocabulary), (1, 4)))
        self.ids = (start + step * torch.arange(12)) % vocabulary

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def accuracy(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits[:, :-1].argmax(-1) == labels[:, 1:]).mean()), "rows": len(labels)}


KEPT = ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "eval_rows", "step")
configuration = GPT2Config(vocab_size=16, n_positions=12, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
set_seed(0)
with tempfile.TemporaryDirectory() as mine:

    def trainer(folder, steps):
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=1e-3, warmup_steps=4,
            weight_decay=0.01, logging_steps=5, eval_strategy="steps", eval_steps=10, save_steps=10, report_to=[], disable_tqdm=True,
            use_cpu=True, seed=0, log_level="error", ddp_backend="gloo",
        )  # fmt: skip
        made = Trainer(
            model=GPT2LMHeadModel(configuration),
            args=arguments,
            train_dataset=Counting(128, 1),
            eval_dataset=Counting(45, 2),
            compute_metrics=accuracy,
        )
        made.remove_callback(PrinterCallback)  # it prints how long everything took
        return made

    def report(trained):
        for entry in trained.state.log_history if trained.is_world_process_zero() else ():
            print({key: value for key, value in entry.items() if key in KEPT}, flush=True)

    shared = [mine]
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.broadcast_object_list(shared)
    folder = shared[0]
    first = trainer(folder, 20)
    say = print if first.is_world_process_zero() else lambda *words: None
    say(first.args.world_size, first.args.parallel_mode, first.args.train_batch_size)
    first.train()
    report(first)
    say(type(first.model_wrapped).__name__, sorted(os.listdir(f"{folder}/checkpoint-10")))
    again = trainer(folder, 20)
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-10")
    report(again)
    same = [bool(torch.equal(a, b)) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True)]
    say("resuming gives the same", all(same))
    found = first.predict(Counting(11, 3))
    say("predicted", found.predictions.argmax(-1).tolist(), found.metrics["test_loss"])
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
