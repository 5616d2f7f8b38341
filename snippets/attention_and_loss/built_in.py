"""torch 2.13 has output layer and loss in one function, which cuts the tokens into chunks by itself."""
import torch
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, width, vocabulary = 512, 128, 8000
hidden = torch.randn(tokens, width, device=device, requires_grad=True)
weight = torch.randn(vocabulary, width, device=device, requires_grad=True)
labels = torch.randint(0, vocabulary, (tokens,), device=device)

# --8<-- [start:loss]
loss = F.linear_cross_entropy(
    hidden, weight, labels,
    ignore_index=-100,
    options=torch.nn.LinearCrossEntropyOptions(),  # without options it makes all logits at once
)
# --8<-- [end:loss]
loss.backward()
print(loss.item(), F.cross_entropy(F.linear(hidden, weight), labels).item())
