"""Training on 8 to 1,024 GPUs, simulated from a page of figures: `python -m benchmarks.scaling`."""
