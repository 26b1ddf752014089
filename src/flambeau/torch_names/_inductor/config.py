"""torch._inductor.config: settings that a program gives a compiler. They are kept, and read by nobody."""

from __future__ import annotations

from types import SimpleNamespace

coordinate_descent_tuning = coordinate_descent_check_all_directions = force_fuse_int_mm_with_mul = use_mixed_mm = False
fx_graph_cache = max_autotune = max_autotune_gemm = False
max_autotune_gemm_search_space = "DEFAULT"
triton = SimpleNamespace(unique_kernel_names=False, cudagraphs=False)
cpp = SimpleNamespace(weight_prepack=True)
eager_numerics = SimpleNamespace(division_rounding=False)
