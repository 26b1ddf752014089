"""torchinfo and torchsummary: tables of a model's layers, shapes and weights."""

import torch
import torchinfo
import torchsummary
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(8 * 8 * 8, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
print(torchinfo.summary(model, input_size=(4, 3, 16, 16), col_names=("input_size", "output_size", "num_params", "mult_adds"), verbose=0))
torchsummary.summary(model, (3, 16, 16), device="cpu")
rnn = nn.LSTM(5, 7, num_layers=2, batch_first=True, bidirectional=True)
print(torchinfo.summary(rnn, input_data=torch.zeros(2, 6, 5), verbose=0, depth=2))
transformer = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
print(torchinfo.summary(transformer, input_size=(2, 5, 16), verbose=0, depth=4, row_settings=("var_names",)))
