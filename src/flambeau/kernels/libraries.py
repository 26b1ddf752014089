"""What a program asks of the libraries that multiply, convolve and attend on a GPU: cuBLASLt and cuDNN. PyTorch's switches, with its defaults.

The rooms that offer these switches to programs (`torch.backends`) write them here, and the functions that call the libraries read them in every call.
"""

from __future__ import annotations

# Products of matrices. A switch is one bit, so that all of them together are one number.
TF32 = 1  # factors of float32 are shortened to 10 bits behind the point
WIDE_SUMS_OF_FLOAT16 = 2  # parts of a long sum are added up in float32, not in float16
WIDE_SUMS_OF_BFLOAT16 = 4
SUMS_IN_FLOAT16 = 8  # all of a product of float16 is computed in it
products = 0

# cuDNN
enabled = True  # else our own kernels do its work
benchmark = False  # of the ways to convolve, take the one that was the quickest when it was tried
benchmark_limit: int | None = None  # how many are tried: 10 unless a program says something else; 0 means all
deterministic = False  # take no way whose results may differ from run to run
convolutions_in_tf32 = True


def switch_products(bit: int, on: bool) -> None:
    """Set one of the switches of `products`."""
    global products
    products = products | bit if on else products & ~bit
