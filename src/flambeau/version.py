"""The version of this package, and the version of PyTorch whose API it speaks."""

__version__ = "0.1.0"
torch_version = "2.13.0"
