"""ZeroRedundancyOptimizer: the state of an optimizer, shared out among the ranks.

    rank 0   moves a, d   keeps their state   sends a, d
    rank 1   moves b, c   keeps their state   sends b, c

Every rank has all parameters and all gradients, so the steps are those of the optimizer itself, to the last bit.
Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2019 (its first stage).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flambeau import distributed
from flambeau.distributed.algorithms.join import Joinable, JoinHook
from flambeau.distributed.data_parallel import replicas
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.distributed.data_parallel.grad_bucket import views
from flambeau.distributed.data_parallel.moving import mapped
from flambeau.distributed.optim.shares import shared_out
from flambeau.optim import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """`optimizer_class`, each rank for a share of the parameters.

    process_group              the ranks that share; None for all
    parameters_as_bucket_view  let the parameters of each rank lie in one piece of memory, which is sent as it is
    overlap_with_ddp           make steps in a communication hook of DistributedDataParallel, see ddp_zero_hook.py: `step()` does nothing then
    defaults                   the options of the optimizer

    `optim` is this rank's optimizer. Before `state_dict()`, `consolidate_state_dict()` brings everyone's state to one rank.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ):
        params = _verified(params)
        self.initialized = False
        Optimizer.__init__(self, params, defaults)
        Joinable.__init__(self)
        self.process_group = default_group(process_group, None)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self.global_rank = self._global_rank(self.rank)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._overlap_with_ddp = overlap_with_ddp
        self._optim_defaults, self._optim_constructor = defaults, optimizer_class
        self._all_state_dicts: list[dict[str, Any]] = []
        self._clear_cache()
        self._make_local()
        self.initialized = True

    # ---- whose is what ----

    def _clear_cache(self) -> None:
        """Forget whose parameters are whose."""
        self._partition: list[list[dict[str, Any]]] = []
        self._buckets: dict[Any, list[Tensor]] = {}

    def _partition_parameters(self, params_per_rank: list[list[Tensor]] | None = None) -> list[list[dict]]:
        """For each rank its groups: as those of this optimizer, with its share of the parameters."""
        if params_per_rank is not None:
            chosen = {id(p): rank for rank, params in enumerate(params_per_rank) for p in params}
            missing = [p for group in self.param_groups for p in group["params"] if id(p) not in chosen]
            if missing or len(params_per_rank) != self.world_size:
                raise ValueError(
                    f"params_per_rank must have a list for each of {self.world_size} ranks, and every parameter in one of them"
                )
            return self._shared(lambda _, params: [chosen[id(p)] for p in params])
        if not self._partition:
            loads = [0] * self.world_size

            def owners(_: int, params: list[Tensor]) -> list[int]:
                nonlocal loads
                found, loads = shared_out([p.numel() for p in params], self.world_size, loads)
                return found

            self._partition = self._shared(owners)
        return self._partition

    def _shared(self, owners: Callable[[int, list[Tensor]], list[int]]) -> list[list[dict]]:
        found: list[list[dict]] = [[] for _ in range(self.world_size)]
        for number, group in enumerate(self.param_groups):
            whose = owners(number, group["params"])
            for rank, groups in enumerate(found):
                own = [p for p, owner in zip(group["params"], whose, strict=True) if owner == rank]
                own.sort(key=lambda p: -p.numel())  # the order in which they were shared out, which PyTorch keeps
                groups.append({**group, "params": own})
        return found

    @property
    def _param_to_rank(self) -> dict[Tensor, int]:
        """Who moves a parameter."""
        return {p: rank for rank, groups in enumerate(self._partition_parameters()) for group in groups for p in group["params"]}

    @property
    def _param_to_index(self) -> dict[Tensor, int]:
        """The numbers of parameters in state dicts."""
        return {p: i for i, p in enumerate(self._index_to_param)}

    @property
    def _index_to_param(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _global_rank(self, rank: int) -> int:
        ranks = getattr(self.process_group, "ranks", None)
        return ranks[rank] if ranks else rank

    def _make_local(self) -> None:
        """This rank's optimizer. One that has nothing to move, on a rank of more than there are parameters, makes no steps."""
        groups = [{**group, "params": list(group["params"])} for group in self._partition_parameters()[self.rank]]
        defaults = dict(self._optim_defaults)
        self.optim: Any = self._optim_constructor(groups, **defaults) if groups else None
        self._complete_groups()
        if self.parameters_as_bucket_view:
            self._build_param_buckets()

    def _complete_groups(self) -> None:
        """Options that the optimizer has by default become those of the groups here."""
        for own, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in local.items():
                if name != "params":
                    own.setdefault(name, value)
        for name, value in self.optim.defaults.items():
            self.defaults.setdefault(name, value)

    def _build_param_buckets(self) -> None:
        """Let the parameters of a rank that are of one dtype and device lie in one piece of memory."""
        kinds: dict[Any, list[Tensor]] = {}
        for p, rank in self._param_to_rank.items():
            kinds.setdefault((rank, p.dtype, p.device), []).append(p)
        self._buckets = {}
        for (rank, dtype, device), params in kinds.items():
            flat = zeros(sum(p.numel() for p in params), dtype=dtype, device=device)
            for p, view in zip(params, views(flat, params), strict=True):
                view.copy_(p.detach())
                p.data = view
            self._buckets.setdefault(rank, []).append(flat)

    # ---- steps ----

    def step(self, closure: Callable[[], float] | None = None, **kwargs: Any) -> Any:
        """Move this rank's parameters, and receive the others'. A loss if there is a closure."""
        if self._overlap_with_ddp:
            return None
        loss = self._local_step(closure=closure, **kwargs)
        self._sync_params()
        return loss

    def _local_step(self, gradients: list[Tensor | None] | None = None, closure: Callable[[], float] | None = None, **kwargs: Any) -> Any:
        """Move this rank's parameters; by `gradients`, in the order of the optimizer's parameters, if they are given."""
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        if gradients is None:
            loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        else:
            params = [p for group in self.optim.param_groups for p in group["params"]]
            before = [p.grad for p in params]
            for p, grad in zip(params, gradients, strict=True):
                p.grad = grad
            try:
                loss = self.optim.step(**kwargs)
            finally:
                for p, grad in zip(params, before, strict=True):
                    p.grad = grad
        self._sync_param_groups(self.optim.param_groups, self.param_groups)
        return loss

    def _sync_params(self) -> None:
        """Send everyone the parameters of each rank."""
        for rank in range(self.world_size):
            self._broadcast_params_from_rank(rank)

    def _broadcast_params_from_rank(self, rank: int) -> None:
        if self.parameters_as_bucket_view:
            tensors = self._buckets.get(rank, [])
        else:
            tensors = [p for group in self._partition_parameters()[rank] for p in group["params"]]
        if tensors:
            replicas.broadcast(self.process_group, tensors, rank)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Another group, which is shared out like those before; nobody's earlier parameters change hands."""
        Optimizer.add_param_group(self, param_group)
        if not getattr(self, "initialized", False):
            return
        if self._overlap_with_ddp:
            raise RuntimeError(
                "add_param_group: with overlap_with_ddp=True the gradients of new parameters would have no bucket. Add them before"
            )
        self._clear_cache()
        self.optim.add_param_group({**self._partition_parameters()[self.rank][-1]})
        self._complete_groups()
        if self.parameters_as_bucket_view:
            self._build_param_buckets()

    @staticmethod
    def _sync_param_groups(src_param_groups: list[dict[Any, Any]], dst_param_groups: list[dict[Any, Any]]) -> None:
        """Give groups the options of others: learning rates that a scheduler has changed, say."""
        for source, target in zip(src_param_groups, dst_param_groups, strict=True):
            for name in filter(lambda name: name != "params", source):
                target[name] = source[name]

    # ---- with DistributedDataParallel ----

    def join_hook(self, **_kwargs: Any) -> JoinHook:
        """What a rank without data does: it moves its parameters all the same, others need them."""
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self._index_to_param[0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # ---- saving and loading ----

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the states of all ranks to rank `to`, in main memory. All ranks call it."""
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        own = mapped(lambda tensor: tensor.detach().cpu(), self.optim.state_dict())
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        distributed.gather_object(own, found, dst=self._global_rank(to), group=self.process_group)
        self._all_state_dicts = found or []

    def state_dict(self) -> dict[str, Any]:
        """As that of the optimizer itself would be, for all parameters."""
        if not self._all_state_dicts:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank ({self.rank}). Please call `consolidate_state_dict(to=...)` on all ranks "
                f"beforehand: with to={self.rank} the state of all parameters comes here"
            )
        found = Optimizer.state_dict(self)
        state: dict[int, Any] = {}
        index = self._param_to_index
        for local, groups in zip(self._all_state_dicts, self._partition_parameters(), strict=True):
            for saved, group in zip(local["param_groups"], groups, strict=True):
                for number, p in zip(saved["params"], group["params"], strict=True):
                    if number in local["state"]:
                        state[index[p]] = local["state"][number]
        found["state"] = dict(sorted(state.items()))
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of a state dict of all parameters, which may be of the optimizer itself, or of another number of ranks."""
        params = self._index_to_param
        own = {id(p) for group in self._partition_parameters()[self.rank] for p in group["params"]}
        kept = {number: state for number, state in state_dict["state"].items() if id(params[number]) in own}
        numbers = {id(p): i for i, p in enumerate(params)}
        local = copy.copy(state_dict)
        groups, state, count = [], {}, 0
        for saved, group in zip(state_dict["param_groups"], self._partition_parameters()[self.rank], strict=True):
            places = []
            for p in group["params"]:
                if numbers[id(p)] in kept:
                    state[count] = kept[numbers[id(p)]]
                places.append(count)
                count += 1
            groups.append({**saved, "params": places})
        local["state"], local["param_groups"] = state, groups
        self.optim.load_state_dict(local)
        self._sync_param_groups(self.optim.param_groups, self.param_groups)


class _ZeROJoinHook(JoinHook):
    """Steps in the place of passes."""

    def __init__(self, zero: Any):
        if not isinstance(zero, ZeroRedundancyOptimizer):
            raise AssertionError("ZeRO join hook requires passing in a ZeroRedundancyOptimizer instance as the state")
        self.zero = zero

    def main_hook(self) -> None:
        """A step: the gradients are those that the others have averaged."""
        self.zero.step()


def _verified(params: Any) -> list[Any]:
    if isinstance(params, Tensor):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {type(params).__name__}: try [tensor]")
    found = list(params)
    if not found:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if len({isinstance(one, dict) for one in found}) > 1:
        raise TypeError("`params` argument should be an iterable of Tensors or of dicts, but has both: put each tensor into a group, too")
    for one in found:
        if isinstance(one, dict):
            if "params" not in one:
                raise ValueError(
                    "Each parameter group passed-in via `params` must have a 'params' key mapping to the parameters in the group"
                )
        elif not isinstance(one, Tensor):
            raise TypeError(f"`params` argument should be an iterable of Tensors or dicts, but got an iterable containing {type(one)}")
    for p in (p for one in found for p in (one["params"] if isinstance(one, dict) else [one])):
        if isinstance(p, Tensor) and p.is_sparse:
            raise ValueError("ZeroRedundancyOptimizer only supports using the same dense type for all parameters")
    return found
