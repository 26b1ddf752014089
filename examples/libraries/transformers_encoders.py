"""transformers: BERT, T5 and ViT from tiny configurations: a few steps each, seq2seq generation, attentions and hidden states."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)


def train(model, **batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(5):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(type(model).__name__, loss.item())
    model.eval()


torch.manual_seed(0)
ids, labels = torch.randint(3, 64, (4, 12)), torch.tensor([0, 1, 2, 1])
mask = (torch.arange(12) < torch.tensor([[12], [7], [3], [9]])).long()

sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
bert = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=32, num_labels=3, **sizes))
train(bert, input_ids=ids, attention_mask=mask, labels=labels)
with torch.no_grad():
    found = bert(ids, attention_mask=mask, output_hidden_states=True)
print("logits", found.logits[0].tolist(), len(found.hidden_states))

t5 = T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0))
train(t5, input_ids=ids, attention_mask=mask, labels=ids[:, :6].contiguous())
print("T5", t5.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False).tolist())
print("T5 beam", t5.generate(ids, attention_mask=mask, max_new_tokens=6, num_beams=3, do_sample=False).tolist())

vit = ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_labels=3, **sizes))
train(vit, pixel_values=torch.randn(4, 3, 16, 16), labels=labels)
