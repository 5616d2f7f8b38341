"""A contrastive loss over a large batch, in the memory of a small one. Plain PyTorch, any device."""
import torch
import torch.nn.functional as F
from transformers import AutoModel, BertConfig, set_seed

device = "cuda" if torch.cuda.is_available() else "cpu"
set_seed(0)
size = {} if device == "cuda" else {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(**size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # both passes must compute the same
model = AutoModel.from_config(config).to(device).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


# --8<-- [start:step]
def embed(ids):
    return F.normalize(model(input_ids=ids).last_hidden_state.mean(dim=1), dim=-1)


def loss_of(embedded, temperature=0.05):
    queries, answers = embedded.chunk(2)
    return F.cross_entropy(queries @ answers.T / temperature, torch.arange(len(queries), device=embedded.device))


def backward_in_chunks(ids, chunk=32):  # ids: all queries, then all answers in the same order
    pieces = ids.split(chunk)
    with torch.no_grad():
        embedded = torch.cat([embed(piece) for piece in pieces])
    loss = loss_of(embedded.requires_grad_())
    loss.backward()  # as far as the embeddings, which are small
    for piece, gradient in zip(pieces, embedded.grad.split(chunk), strict=True):
        embed(piece).backward(gradient)  # one piece again, and through the model
    return loss.detach()
# --8<-- [end:step]


ids = torch.randint(5, config.vocab_size, (256, 32), device=device)  # 128 queries and 128 answers
for step in range(4):
    loss = backward_in_chunks(ids)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}")
