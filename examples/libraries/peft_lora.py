"""peft: LoRA on a tiny GPT-2: only the adapters learn, they are saved alone, loaded again, merged into the weights."""

import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel


def base():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2))


model = get_peft_model(
    base(), LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=16, lora_dropout=0.1, target_modules=["c_attn", "c_proj"])
)
model.print_trainable_parameters()
ids = torch.randint(3, 64, (4, 16))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
for _ in range(8):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    logits = model(ids).logits
    with model.disable_adapter():
        print("adapter changes", (model(ids).logits - logits).abs().mean().item())
    model.save_pretrained(folder)
    print(sorted(path.name for path in Path(folder).iterdir()))
    again = PeftModel.from_pretrained(base(), folder)
    print("same", torch.equal(again(ids).logits, logits))
    merged = again.merge_and_unload()
    print("merged", type(merged).__name__, torch.allclose(merged(ids).logits, logits, atol=1e-5))
