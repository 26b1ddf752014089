"""torch.ao.nn.quantized.dynamic: layers that take and give float32, and quantize their input by its range each time."""

from flambeau.ao.nn.quantized.dynamic.cells import GRUCell, LSTMCell, RNNCell
from flambeau.ao.nn.quantized.dynamic.linear import Linear
from flambeau.ao.nn.quantized.dynamic.rnn import GRU, LSTM

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "Linear", "RNNCell"]
