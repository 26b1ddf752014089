"""The program of a rank in startup.py: it joins, sums one number with the others, says so, and leaves.

first_all_reduce.py torch          as RANK, RANK and the rest of it being in the environment
first_all_reduce.py torch spawn    in WORLD_SIZE processes that multiprocessing.spawn() starts
"""

import os
import sys
from importlib import import_module


def join(rank, package):
    """Rank, or what the environment says, of a world."""
    torch = import_module(package)
    distributed = import_module(f"{package}.distributed")
    where = {} if rank is None else {"rank": rank, "world_size": int(os.environ["WORLD_SIZE"])}
    distributed.init_process_group("gloo", **where)
    one = torch.ones(1)
    distributed.all_reduce(one)
    assert one.item() == distributed.get_world_size()
    print("done", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    package, *spawned = sys.argv[1:]
    if spawned:
        import_module(f"{package}.multiprocessing").spawn(join, args=(package,), nprocs=int(os.environ["WORLD_SIZE"]))
    else:
        join(None, package)
