"""transformers: 26 families of language models from tiny configurations: two AdamW steps each, then greedy generation."""

import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
SIZES = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
TWO = dict(num_key_value_heads=2)
CAUSAL = {
    "Mistral": TWO, "Qwen2": TWO, "Qwen3": dict(head_dim=8, **TWO), "Gemma": dict(num_key_value_heads=1, head_dim=8),
    "Gemma2": dict(head_dim=8, **TWO), "Phi": {}, "Phi3": dict(pad_token_id=0, **TWO), "GPTNeoX": {},
    "OPT": dict(ffn_dim=64, word_embed_proj_dim=32), "Bloom": {}, "Mixtral": dict(num_local_experts=4, **TWO), "Falcon": {},
    "Mamba": dict(state_size=4), "GPTJ": dict(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64), "StableLm": TWO, "Olmo2": TWO,
    "Cohere": TWO, "Qwen2Moe": dict(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16, **TWO),
}  # fmt: skip
MASKED = {
    "Roberta": {}, "Electra": dict(embedding_size=16), "Albert": dict(embedding_size=16), "DebertaV2": {}, "MPNet": {}, "XLMRoberta": {},
    "DistilBert": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "ModernBert": dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
}  # fmt: skip

for task, families in (("CausalLM", CAUSAL), ("MaskedLM", MASKED)):
    for name, options in families.items():
        torch.manual_seed(0)
        configuration = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
        model = getattr(transformers, f"{name}For{task}")(configuration).train()
        ids = torch.randint(3, 64, (2, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(name, loss.item())
        if task == "CausalLM":
            print(name, model.eval().generate(ids[:, :4], max_new_tokens=4, do_sample=False, pad_token_id=0).tolist())
