"""Two processes on one machine, Flambeau beside PyTorch with gloo: `python -m benchmarks.distributed`."""
