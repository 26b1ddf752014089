"""transformers: GPT-2 and Llama from a tiny configuration: AdamW steps, generation in four ways, and a round trip through files."""

import tempfile

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

small = dict(vocab_size=64, bos_token_id=1, eos_token_id=2)
CONFIGURATIONS = {
    GPT2LMHeadModel: GPT2Config(n_positions=48, n_embd=32, n_layer=2, n_head=4, **small),
    LlamaForCausalLM: LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=48,
        **small,
    ),
}

for kind, configuration in CONFIGURATIONS.items():
    torch.manual_seed(0)
    model = kind(configuration)
    print(kind.__name__, sum(p.numel() for p in model.parameters()))
    ids = torch.randint(3, 64, (4, 16))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    model.train()
    for _ in range(8):
        loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print("loss", loss.item(), "norm", norm.item())

    model.eval()
    start = ids[:2, :4]
    known = dict(max_new_tokens=10, pad_token_id=0, attention_mask=torch.ones_like(start))
    print("greedy", model.generate(start, do_sample=False, **known).tolist())
    print("beam", model.generate(start, do_sample=False, num_beams=3, num_return_sequences=2, **known).tolist())
    torch.manual_seed(1)
    print("sample", model.generate(start, do_sample=True, temperature=0.8, top_k=20, top_p=0.9, **known).tolist())
    print("penalty", model.generate(start, do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=2, **known).tolist())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder)
        print("same", torch.equal(model(ids).logits, again(ids).logits), type(again).__name__)
        half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        print("half", half.dtype, (half(ids).logits.float() - model(ids).logits).abs().max().item() < 0.05)
