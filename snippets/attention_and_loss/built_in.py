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


# --8<-- [start:language-model]
def built_in_cross_entropy(hidden, weight, labels, num_items=None):
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()  # token n predicts token n + 1
    if num_items is None:
        num_items = (labels != -100).sum()
    options = torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(hidden.flatten(0, 1), weight, labels, reduction="sum", options=options)
    return loss / num_items
# --8<-- [end:language-model]


sequences, targets = hidden.detach().view(4, 128, width), labels.view(4, 128)
print(built_in_cross_entropy(sequences, weight, targets).item())
