"""The allocator of GPUs: blocks are reused in the order of streams, counted as PyTorch counts them, and given back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import flambeau as torch

MIB = 2**20


def stat(name):
    return torch.cuda.memory_stats()[name]


def test_counters_are_pytorchs(gpu):
    """Sizes are multiples of 512; pieces from the driver are 2 MiB, 20 MiB, or what is asked for; small and large are counted apart."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_stats()
    assert before["allocation.all.current"] == before["allocation.small_pool.current"] + before["allocation.large_pool.current"]
    small, large = torch.empty(100, dtype=torch.uint8, device="cuda"), torch.empty(33 * MIB, dtype=torch.uint8, device="cuda")
    change = {name: value - before[name] for name, value in torch.cuda.memory_stats().items()}
    assert change["allocated_bytes.small_pool.current"] == 512 and change["allocated_bytes.large_pool.current"] == 34 * MIB
    assert change["requested_bytes.all.current"] == 100 + 33 * MIB and change["allocation.all.allocated"] == 2
    assert change["reserved_bytes.large_pool.current"] == 34 * MIB and change["segment.large_pool.current"] == 1
    assert change["inactive_split_bytes.large_pool.current"] == 0  # a rest of at most 1 MiB stays with its block
    del small, large
    assert stat("allocated_bytes.all.current") == before["allocated_bytes.all.current"]
    assert stat("reserved_bytes.all.current") > before["reserved_bytes.all.current"]
    torch.cuda.empty_cache()
    assert stat("reserved_bytes.large_pool.current") == before["reserved_bytes.large_pool.current"] and stat("num_device_free") > 0
    torch.cuda.reset_accumulated_memory_stats()
    assert stat("allocation.all.allocated") == 0 and stat("num_device_free") == 0


def test_blocks_are_cut_and_joined(gpu):
    """A freed block is cut for smaller ones, and whole again when they are gone."""
    torch.cuda.empty_cache()
    whole = torch.empty(12 * MIB, dtype=torch.uint8, device="cuda")
    place = whole.data_ptr()
    del whole
    parts = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    assert sorted(p.data_ptr() - place for p in parts) == [0, 4 * MIB, 8 * MIB]
    del parts[1]
    assert stat("inactive_split_bytes.large_pool.current") >= 4 * MIB
    parts.clear()
    again = torch.empty(12 * MIB, dtype=torch.uint8, device="cuda")
    assert again.data_ptr() == place


def test_snapshot(gpu):
    """Segments are made of blocks that follow each other, and tensors lie in active ones."""
    x = torch.empty(5000, device="cuda")
    found = torch.cuda.memory_snapshot()
    for segment in found:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and block["state"] in ("inactive", "active_allocated", "active_awaiting_free")
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    (mine,) = [b for s in found for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert mine["state"] == "active_allocated" and mine["requested_size"] == 20000 and mine["size"] == 20480
    assert sum(s["total_size"] for s in found) == torch.cuda.memory_reserved()
    assert sum(s["allocated_size"] for s in found) == torch.cuda.memory_allocated()


def test_streams_do_not_get_each_others_blocks(gpu):
    """What is freed on one stream goes to that stream again, for work of another may still be behind."""
    side = torch.cuda.Stream()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    place = x.data_ptr()
    del x
    with torch.cuda.stream(side):
        other = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    assert other.data_ptr() != place
    assert torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == place


def check_record_stream(hold, let_go):
    """A tensor that another stream uses, too, is free when that stream has come so far."""
    side = torch.cuda.Stream()
    x = torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
    place = x.data_ptr()
    hold(side)
    x.record_stream(side)
    del x
    assert stat("active_bytes.all.current") - stat("allocated_bytes.all.current") >= 7 * MIB
    assert torch.empty(7 * MIB, dtype=torch.uint8, device="cuda").data_ptr() != place
    let_go(side)
    torch.empty(1, device="cuda")  # looks whether something has become free
    assert stat("active_bytes.all.current") == stat("allocated_bytes.all.current")
    x = torch.empty(3, device="cuda")
    x.record_stream(torch.cuda.current_stream())  # its own: nothing to wait for


def check_record_stream_there():
    """The same on a GPU."""

    def hold(side):
        torch.cuda._sleep(1)  # compiled
        with torch.cuda.stream(side):
            torch.cuda._sleep(4 * 10**8)  # 0.2 s

    check_record_stream(hold, lambda side: side.synchronize())


def test_record_stream(gpu):
    """What is recorded is kept until an event has happened; on a GPU in a process of its own, for tests launch one thing after another."""
    if not gpu.real:
        import fake_cupy

        driver = fake_cupy.fake_driver()
        check_record_stream(lambda side: driver.fake_hold(1), lambda side: driver.fake_hold(0))
        return
    program = (
        f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}]; import test_cuda_memory; test_cuda_memory.check_record_stream_there()"
    )
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"CUDA_LAUNCH_BLOCKING": "0"}, check=True, timeout=120)


def test_fraction(gpu):
    """Beyond the part of a GPU that a process may take there is no room, though the GPU has some."""
    torch.cuda.empty_cache()
    with pytest.raises(ValueError, match="Invalid fraction"):
        torch.cuda.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="Invalid type"):
        torch.cuda.set_per_process_memory_fraction(1)
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 64 * MIB) / total)
    try:
        x = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match="This process may take"):
            torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        assert 0 < torch.cuda.get_per_process_memory_fraction() < 1
        del x
        torch.empty(48 * MIB, dtype=torch.uint8, device="cuda")  # what was kept is given back, and there is room
        assert stat("num_alloc_retries") >= 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0


def test_pools(gpu):
    """What a thread allocates within `use_mem_pool` is the pool's own."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(1000, device="cuda")
    y = torch.empty(1000, device="cuda")
    (segment,) = pool.snapshot()
    inside = range(segment["address"], segment["address"] + segment["total_size"])
    assert x.data_ptr() in inside and y.data_ptr() not in inside and segment["segment_pool_id"] == pool.id
    del x, segment
    identity = pool.id
    del pool
    torch.cuda.empty_cache()
    assert not torch.cuda.memory_snapshot(identity)


def test_memory_for_other_libraries(gpu):
    """An address that stays until it is given back."""
    before = torch.cuda.memory_allocated()
    place = torch.cuda.caching_allocator_alloc(5000)
    assert torch.cuda.memory_allocated() == before + 5120
    torch.cuda.caching_allocator_delete(place)
    assert torch.cuda.memory_allocated() == before
    assert "cudaMalloc retries" in torch.cuda.memory_summary()


def test_threads(gpu):
    """A thread that has never used the GPU can, and is given memory of its own."""
    found, x = [], torch.ones(100, device="cuda")

    def work():
        found.append((x * 2).sum().item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200.0] * 4


def test_compiled_code_knows_cupys_arrays(gpu):
    """On a GPU arrays are made without CuPy's functions; they are what CuPy itself would make."""
    from flambeau.kernels.cuda import cupy_objects

    if not gpu.real:
        assert cupy_objects.places() is None  # the stand-in's classes are asked for attributes
        return
    assert cupy_objects.places() is not None, "CuPy's classes have changed: everything works, but each array takes 2 us longer"
    np, cupy = pytest.importorskip("numpy"), gpu.cupy
    for shape, strides in (((3, 5), None), ((), None), ((0, 4), None), ((2, 3, 4), (8, 16, 48)), ((1, 7), (4, 4)), ((6,), (24,))):
        ours = gpu.lib.gpu_empty(shape, np.dtype(np.float32), *([] if strides is None else [strides]))
        theirs = cupy.ndarray(shape, np.float32, None if strides is None else cupy.cuda.alloc(1000), strides)
        for name in ("shape", "size", *(("strides",) if ours.size else ()), "ndim", "dtype", "nbytes", "itemsize"):
            assert getattr(ours, name) == getattr(theirs, name), (shape, strides, name)
        for flag in ("c_contiguous", "f_contiguous", "owndata"):
            assert getattr(ours.flags, flag) == getattr(theirs.flags, flag), (shape, strides, flag)
        ours[...], theirs[...] = 3, 4
        assert (ours + theirs == 7).all() and ours.get().shape == shape
    x = cupy.arange(24, dtype=np.float32).reshape(2, 3, 4)
    view = gpu.lib.gpu_view(x, (3, 2), (4, 12), 1)
    assert view.get().tolist() == x.get().transpose(1, 0, 2)[:, :, 1].tolist() and view.data.mem is x.data.mem
    assert gpu.lib.gpu_view(x, (24,), (1,), 0, np.dtype(np.int32)).dtype == np.int32


def test_copies_that_need_not_be_waited_for(gpu):
    """From pinned memory and to it copies can be left to the stream: both ways the values arrive, in any order of dimensions."""
    host = torch.arange(24.0).view(2, 3, 4).transpose(0, 2)
    pinned = torch.empty_strided(host.shape, host.stride()).pin_memory()
    pinned.copy_(host)
    moved = pinned.to("cuda", non_blocking=True)
    assert torch.equal(moved.cpu(), host)
    back = torch.empty(2, 3, 4).pin_memory().transpose(0, 2)
    back.copy_(moved, non_blocking=True)
    came = moved.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, host) and torch.equal(came, host) and came.is_pinned() and came.stride() == moved.stride()
    moved.copy_(torch.zeros(4, 3, 2))  # lies another way
    assert moved.sum().item() == 0
    moved[0].copy_(torch.ones(3, 2), non_blocking=True)
    assert moved.sum().item() == 6


def test_writing_in_place(gpu):
    """In-place forms write where they read, and refuse other shapes and memory that overlaps in part, at every call."""
    x = torch.arange(6.0, device="cuda")
    for _ in range(3):  # the general way, with notes, by the plan
        x.add_(x)
        with pytest.raises(RuntimeError, match=r"clone\(\)"):
            x[1:].add_(x[:-1])
        x[3:].sub_(x[:3])
    expected = torch.arange(6.0)
    for _ in range(3):
        expected.add_(expected)
        expected[3:].sub_(expected[:3])
    assert x.tolist() == expected.tolist()
    small = torch.ones(1, device="cuda")
    for _ in range(3):
        x.mul_(small * 2)
        with pytest.raises(RuntimeError):
            small.mul_(x)
    assert x.tolist() == (expected * 8).tolist()


def test_waits_are_told(gpu):
    """Where a program waits for the GPU can be a warning, or an error."""
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="debug_mode"):
        torch.cuda.set_sync_debug_mode("loud")
    try:
        torch.cuda.set_sync_debug_mode("warn")
        assert torch.cuda.get_sync_debug_mode() == 1
        with pytest.warns(UserWarning, match="synchronizing"):
            x.sum().item()
        torch.cuda.set_sync_debug_mode(2)
        for wait in (x.cpu, x.tolist, lambda: bool(x[0])):
            with pytest.raises(RuntimeError, match="synchronizing"):
                wait()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert x.tolist() == [1, 1, 1]


def test_sensors(gpu):
    """What the management library says is a number that can be; without one, it says so."""
    questions = (torch.cuda.utilization, torch.cuda.memory_usage, torch.cuda.temperature, torch.cuda.power_draw, torch.cuda.clock_rate)
    if not gpu.real:
        for question in questions:
            with pytest.raises((ModuleNotFoundError, AttributeError)):
                question()
        return
    assert all(isinstance(question(), int) and question() >= 0 for question in questions)
    assert torch.cuda.device_memory_used() > 0 and torch.cuda.list_gpu_processes().startswith("GPU:0\n")


def test_filling(gpu):
    """Every dtype holds the number it is filled with, as on the CPU; zeros of both signs, and integers that wrap around."""
    for dtype, values in (
        (torch.float32, (0.0, -0.0, 1, float("nan"), 1e39)), (torch.bfloat16, (0.1, -3)), (torch.uint8, (0, 127, 200, -1)), (torch.int64, (2**40, -5)),
        (torch.bool, (True, 0)), (torch.complex64, (1 + 2j, 3) if gpu.real else (0,)),
    ):  # fmt: skip
        for value in values:
            there, here = torch.empty(5, dtype=dtype, device="cuda"), torch.empty(5, dtype=dtype)
            try:
                here.fill_(value)
            except RuntimeError:
                continue
            there.fill_(value)
            assert there.cpu().view(torch.uint8).tolist() == here.view(torch.uint8).tolist() or value != value, (dtype, value)
