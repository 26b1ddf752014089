"""NCCL, the engine that moves bytes between GPUs, through CuPy."""
