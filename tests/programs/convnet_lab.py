"""A laboratory: a small convolutional network, batch normalisation, SGD with momentum, parameter groups, a cosine."""

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

torch.manual_seed(7)
pattern = torch.randn(4, 1, 12, 12)
labels = torch.randint(0, 4, (160,))
images = pattern[labels] + 0.8 * torch.randn(160, 1, 12, 12)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, kernel_size=3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(16 * 9, 4))

    def forward(self, x):
        return self.head(self.features(x))


def groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


model = ConvNet()
print(model)
print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")
optimizer = torch.optim.SGD(groups(model, 1e-3), lr=0.05, momentum=0.9, nesterov=True)
scheduler = CosineAnnealingLR(optimizer, T_max=5)
for epoch in range(5):
    model.train()
    order = torch.randperm(len(images))
    losses = []
    for chosen in order.split(32):
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print(f"Epoch {epoch + 1} loss {sum(losses) / len(losses):.3f} accuracy {accuracy:.3f} lr {scheduler.get_last_lr()[0]:.4f}")
bn = model.features[1]
print(bn.num_batches_tracked.item(), bn.running_mean.shape, [f"{v:.2f}" for v in bn.running_var.tolist()])
