"""The laboratory: a perceptron on pictures, from data set to saved weights and back."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE, LEARNING_RATE, NUM_EPOCHS, HIDDEN_DIM = 32, 1e-3, 3, 64
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(f"Training on: {device}")
torch.manual_seed(0)
pattern = torch.randn(10, 1, 28, 28)


def pictures(count):
    labels = torch.randint(0, 10, (count,))
    return TensorDataset(pattern[labels] + torch.randn(count, 1, 28, 28), labels)


train_data, test_data = pictures(320), pictures(100)
train_loader = DataLoader(train_data, batch_size=BATCH_SIZE, shuffle=True)
test_loader = DataLoader(test_data, batch_size=BATCH_SIZE, shuffle=False)


class Classifier(nn.Module):
    def __init__(self, hidden_dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden_dim), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden_dim, hidden_dim), nn.ReLU(),
            nn.Dropout(0.2), nn.Linear(hidden_dim, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


model = Classifier(HIDDEN_DIM).to(device)
print(model)
print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    total_loss, correct, total = 0.0, 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * labels.size(0)
        correct += (outputs.argmax(1) == labels).sum().item()
        total += labels.size(0)
    return total_loss / total, correct / total


def evaluate(model, loader, criterion, device):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            outputs = model(images)
            total_loss += criterion(outputs, labels).item() * labels.size(0)
            correct += (outputs.argmax(1) == labels).sum().item()
            total += labels.size(0)
    return total_loss / total, correct / total


for epoch in range(NUM_EPOCHS):
    train_loss, train_acc = train_one_epoch(model, train_loader, criterion, optimizer, device)
    test_loss, test_acc = evaluate(model, test_loader, criterion, device)
    print(f"Epoch {epoch + 1:2d}/{NUM_EPOCHS}  Train {train_loss:.3f} {train_acc:.3f}  Test {test_loss:.3f} {test_acc:.3f}")

torch.save(model.state_dict(), "weights.pth")
loaded = Classifier(HIDDEN_DIM)
print(loaded.load_state_dict(torch.load("weights.pth", weights_only=True)))
print(evaluate(loaded, test_loader, criterion, device) == evaluate(model, test_loader, criterion, device))
torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "test_acc": test_acc}, "checkpoint.pth")
checkpoint = torch.load("checkpoint.pth", map_location="cpu", weights_only=True)
optimizer.load_state_dict(checkpoint["optimizer"])
print(sorted(checkpoint), checkpoint["epoch"], f"{checkpoint['test_acc']:.3f}", len(checkpoint["optimizer"]["state"]))
print("Final:", [f"{v:.2f}" for v in train_one_epoch(model, train_loader, criterion, optimizer, device)])
