"""Schedule-free AdamW in a loop of your own: it must know whether you train or evaluate."""
import torch
from schedulefree import AdamWScheduleFree

model = torch.nn.Linear(8, 1)
inputs = torch.randn(64, 8)
targets = inputs.sum(dim=1, keepdim=True)

# --8<-- [start:loop]
optimizer = AdamWScheduleFree(model.parameters(), lr=0.1, warmup_steps=5)
for epoch in range(10):
    model.train()
    optimizer.train()  # the weights that are trained
    for batch in range(0, 64, 16):
        loss = torch.nn.functional.mse_loss(model(inputs[batch : batch + 16]), targets[batch : batch + 16])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    optimizer.eval()  # their average, which is what you evaluate and save
    with torch.no_grad():
        print(f"epoch {epoch}: {torch.nn.functional.mse_loss(model(inputs), targets):.4f}")
# --8<-- [end:loop]
