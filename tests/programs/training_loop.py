"""The five lines of training, around them everything a run wants: batches, clipping, a schedule, validation, early stopping."""

import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
centres = torch.randn(3, 20) * 2
labels = torch.randint(0, 3, (600,))
features = centres[labels] + torch.randn(600, 20)
train_x, train_y, test_x, test_y = features[:480], labels[:480], features[480:], labels[480:]


class Net(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 3))

    def forward(self, x):
        return self.net(x)


def batches(x, y, size=64, shuffle=True):
    order = torch.randperm(len(x)) if shuffle else torch.arange(len(x))
    for start in range(0, len(x), size):
        chosen = order[start : start + size]
        yield x[chosen], y[chosen]


def train_one_epoch(model, criterion, optimizer):
    model.train()
    total_loss, correct, total = 0.0, 0, 0
    for x, y in batches(train_x, train_y):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad(set_to_none=True)
        outputs = model(x)
        loss = criterion(outputs, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        total_loss += loss.item() * y.size(0)
        correct += outputs.argmax(1).eq(y).sum().item()
        total += y.size(0)
    return total_loss / total, correct / total, norm.item()


@torch.inference_mode()
def evaluate(model, criterion):
    model.eval()
    losses = [criterion(model(x), y).item() * len(x) for x, y in batches(test_x, test_y, shuffle=False)]
    return sum(losses) / len(test_x), (model(test_x).argmax(1) == test_y).float().mean().item()


model = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=1e-2)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.3)
best, patience, waited = float("inf"), 2, 0
for epoch in range(12):
    train_loss, train_acc, norm = train_one_epoch(model, criterion, optimizer)
    test_loss, test_acc = evaluate(model, criterion)
    scheduler.step()
    rate = optimizer.param_groups[0]["lr"]
    print(f"Epoch {epoch + 1:2d} | {train_loss:.3f} {train_acc:.4f} | {test_loss:.3f} {test_acc:.4f} | lr {rate:.1e} | norm {norm:.2f}")
    best, waited = (test_loss, 0) if test_loss < best - 1e-3 else (best, waited + 1)
    if waited > patience:
        print("early stop")
        break
probabilities = torch.softmax(model(test_x[:3]), dim=1)
print(probabilities.argmax(dim=1), probabilities.sum(dim=1).round(decimals=4))
