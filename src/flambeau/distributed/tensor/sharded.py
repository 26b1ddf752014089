"""How an operation on DTensors is carried out, and what its derivative is.

Note [the derivative of a sharded operation]

Every rank runs the operation on its own pieces, f(x_1, x_2, ...), and the results together are the result: pieces of it where it is Shard, the
whole where it is Replicate, terms of it where it is Partial. That fixes what backward has to do, whatever f is:

    placement of an operand or result        of the gradient that arrives for a result       of the gradient that leaves for an operand
    Shard(d)                                 Shard(d)                                        Shard(d)
    Partial                                  Replicate: each term has the gradient           Replicate (n times what
                                             of the sum (1/n of it, for a mean)              a term has, for a mean)
    Replicate                                Replicate                                       Partial("sum"), for each rank has used it for its own
                                                                                             piece; Replicate if no other operand, and no result, is
                                                                                             anything but Replicate

and between the two every rank runs the derivative of f on its pieces. So there are no sharding rules for derivatives: f is recorded by the ordinary
tape, on tensors of this rank, and a `Sharded` node on the DTensors runs that piece of tape when its turn comes. Its inputs there are `Source`s, which
hold no memory. Where the derivative is to be differentiated again, the same happens once more, with the gradients that arrived among the operands;
each of n ranks takes 1/n of the gradient of a gradient that all of them have, so that the parts add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

from flambeau import modes
from flambeau.autograd.engine import run_backward
from flambeau.distributed.tensor._api import DTensor, wrapped
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, _NormPartial
from flambeau.distributed.tensor.redistribute import converted
from flambeau.eager.record import attach, start
from flambeau.eager.saved import edge_of
from flambeau.interpreters.by_name import DisableTorchFunction
from flambeau.tensor import Tensor
from flambeau.tensor.node import FREED, Node, freed_error

state = modes.state
Placements = tuple[Placement, ...]


class Source(Node):
    """Stands for an operand on this rank's piece of tape: gradients are read off where it is reached."""

    def apply(self, *grads: Any) -> list:
        return []


class Sharded(Node):
    """An operation on DTensors.

    saved  (edges of this rank's results, a Source per operand or None), of this rank's piece of tape
    """

    mesh: Any
    results: list[tuple[Placements, TensorMeta]]  # per result, how its gradient is to come
    operands: list[tuple[Placements, TensorMeta]]  # per operand, what its gradient is
    alike: list[bool]  # per dimension of the mesh, whether all operands and results are Replicate
    terms: list[int]  # per operand, how many terms it is the mean of
    shares: list[int]  # per result, into how many shares its gradient is divided

    def apply(self, *grads: Any) -> list:
        if self.saved is FREED:
            raise freed_error()
        roots, sources = self.saved
        arrived = [self._arrived(grad, i) for i, grad in enumerate(grads)]
        chosen = [i for i, grad in enumerate(arrived) if grad is not None and roots[i] is not None]
        wanted = [i for i, source in enumerate(sources) if source is not None]
        if not chosen:
            return [None] * len(sources)
        seeds: list[Tensor] = [arrived[i]._local_tensor for i in chosen]
        seed_sources: list[Any] = []
        if state.grad:
            seeds, seed_sources = _stand_ins([arrived[i] for i in chosen], [True] * len(chosen))
        found = run_backward(
            [roots[i] for i in chosen],
            list(seeds),
            keep_graph=True,
            create_graph=state.grad,
            capture=[(sources[i], 0) for i in wanted],
        )
        sent: list[Any] = [None] * len(sources)
        for i, local in zip(wanted, found or (), strict=True):
            if local is not None:
                placements, meta = self.operands[i]
                sent[i] = wrapped(local.detach(), DTensorSpec(self.mesh, placements, meta))
        if state.grad:
            self._record_again(sent, wanted, found or [], [arrived[i] for i in chosen], seed_sources)
        return [grad if grad is None or n == 1 else grad * n for grad, n in zip(sent, self.terms, strict=True)]

    def _arrived(self, grad: Any, i: int) -> Any:
        """This rank's share of a gradient, placed as its results ask for."""
        if grad is None:
            return None
        placements, meta = self.results[i]
        if not isinstance(grad, DTensor) and grad.numel() == 1:  # the seed of backward(): a plain number counts as replicated, here, too
            grad = wrapped(grad.to(self.mesh.device_type), DTensorSpec(self.mesh, (Replicate(),) * self.mesh.ndim, meta_of(grad)))
        if not isinstance(grad, DTensor):
            raise RuntimeError(
                f"the gradient of a DTensor is to be a DTensor, found a plain tensor of shape {tuple(grad.shape)} as the gradient of {meta}"
            )
        wanted = tuple(Replicate() if p.is_partial() else p for p in placements)
        grad = redistributed(grad, wanted)
        return grad if self.shares[i] == 1 else grad / self.shares[i]

    def _record_again(self, sent: list, wanted: list[int], found: Sequence, arrived: list, seed_sources: list) -> None:
        """The derivative as an operation of its own, of the operands and of the gradients that have arrived."""
        kept = [(i, local) for i, local in zip(wanted, found, strict=True) if local is not None and local.requires_grad]
        if not kept:
            return
        node = _named("ShardedBackward")()
        node.mesh = self.mesh
        edges = [*self.edges, *[edge_of(grad) for grad in arrived]]
        start(node, edges, [sent[i]._array for i, _ in kept])
        node.results = [self.operands[i] for i, _ in kept]
        node.shares = [_ranks_that_repeat(self.mesh, how, self.alike) for how, _ in node.results]
        sources = [*self.saved[1], *seed_sources]
        node.alike = self.alike
        node.operands = [*self.operands, *[_gradient_of(g, self.alike) for g in arrived]]
        node.terms = [*self.terms, *[1] * len(arrived)]
        node.saved = [local._edge() for _, local in kept], [s if e is not None else None for s, e in zip(sources, edges, strict=True)]
        for nr, (i, _) in enumerate(kept):
            attach(sent[i], node, nr)


@cache
def _named(name: str) -> type[Sharded]:
    return type(name, (Sharded,), {})


def carried_out(
    name: str, function: Callable[[list[Tensor]], Sequence[Tensor]], operands: Sequence[DTensor], results: Sequence[tuple[Placements, TensorMeta | None]],
    differentiable: bool = True,
) -> list[DTensor]:  # fmt: skip
    """function(this rank's pieces of the operands) -> this rank's pieces of the results, placed as `results` says; recorded where gradients are wanted.

    The operands are placed as the function needs them. A single (placements, None) stands for however many results every rank has all of.
    """
    mesh = operands[0].device_mesh
    wants = [differentiable and state.grad and x.requires_grad for x in operands]
    if not any(wants):
        with DisableTorchFunction():
            found = list(function([x._local_tensor for x in operands]))
        results = _for_each(results, found)
        return [
            wrapped(local.detach() if local.requires_grad else local, _spec(mesh, *how, local))
            for local, how in zip(found, results, strict=True)
        ]
    given, sources = _stand_ins(operands, wants)
    with DisableTorchFunction():
        found = list(function(given))
    results = _for_each(results, found)
    wrapped_up = [wrapped(local.detach(), _spec(mesh, *how, local)) for local, how in zip(found, results, strict=True)]
    roots = [local._edge() if local.requires_grad else None for local in found]
    recorded = [i for i, root in enumerate(roots) if root is not None]
    if recorded:
        node = _named(name)()
        node.mesh = mesh
        start(
            node,
            [edge_of(x) if wanted else None for x, wanted in zip(operands, wants, strict=True)],
            [wrapped_up[i]._array for i in recorded],
        )
        node.results = [(wrapped_up[i]._spec.placements, wrapped_up[i]._spec._meta) for i in recorded]
        node.shares = [_terms_of_mean(mesh, how) for how, _ in node.results]
        node.alike = _alike(mesh, [*[x.placements for x in operands], *[how[0] for how in results]])
        node.operands = [_gradient_of(x, node.alike) for x in operands]
        node.terms = [_terms_of_mean(mesh, x.placements) for x in operands]
        node.saved = [roots[i] for i in recorded], sources
        for nr, i in enumerate(recorded):
            attach(wrapped_up[i], node, nr)
    return wrapped_up


def _for_each(results: Sequence[tuple[Placements, TensorMeta | None]], found: list) -> Sequence[tuple[Placements, TensorMeta | None]]:
    return list(results) * len(found) if len(results) == 1 and results[0][1] is None else results


def _spec(mesh: Any, placements: Placements, meta: TensorMeta | None, local: Tensor) -> DTensorSpec:
    return DTensorSpec(mesh, placements, meta_of(local) if meta is None else meta)


def _stand_ins(operands: Sequence[DTensor], wants: Sequence[bool]) -> tuple[list[Tensor], list[Source | None]]:
    """This rank's pieces, whose history ends in a Source where a gradient is wanted."""
    given: list[Tensor] = []
    sources: list[Source | None] = []
    for x, wanted in zip(operands, wants, strict=True):
        local = x._local_tensor.detach()
        given.append(local)
        sources.append(None)
        if wanted:
            sources[-1] = source = Source()
            start(source, (), [local._array])
            attach(local, source)
    return given, sources


def _alike(mesh: Any, placements: Sequence[Placements]) -> list[bool]:
    """For each dimension of the mesh, whether every rank along it does the same with the same."""
    return [all(p[d].is_replicate() for p in placements) for d in range(mesh.ndim)]


def _gradient_of(x: DTensor, alike: Sequence[bool]) -> tuple[Placements, TensorMeta]:
    """How the gradient of an operand is placed, and what it looks like: see Note [the derivative of a sharded operation]."""
    placements = [
        p if p.is_shard() else Replicate() if same or p.is_partial() else Partial("sum")
        for p, same in zip(x.placements, alike, strict=True)
    ]
    return tuple(placements), x._spec._meta


def _terms_of_mean(mesh: Any, placements: Placements) -> int:
    """Of how many terms a tensor is the mean; one, where it is none."""
    return prod(mesh.size(d) for d, p in enumerate(placements) if p.is_partial("avg"))


def _ranks_that_repeat(mesh: Any, placements: Placements, alike: Sequence[bool]) -> int:
    """How many ranks compute the same gradient of a term, beside gradients that they compute in parts: what is used for it is shared out among them."""
    return prod(mesh.size(d) for d, p in enumerate(placements) if p.is_replicate() and not alike[d])


# -- changing placements ---------------------------------------------------------------------------------------------------


class RedistributeBackward(Node):
    """Gradients come back placed as the tensor was; replicated where it was partial, unless they are partial, too."""

    placements: Placements

    def apply(self, grad: Any) -> list:
        kept = [p.is_partial() and not found.is_partial() for p, found in zip(self.placements, grad.placements, strict=True)]
        return [redistributed(grad, tuple(Replicate() if whole else p for p, whole in zip(self.placements, kept, strict=True)))]


class _CastBackward(Node):
    """Gradients travel in another dtype. The engine casts them back when they arrive."""

    dtype: Any

    def apply(self, grad: Any) -> list:
        return [grad.to(self.dtype)]


def cast_on_the_way(x: DTensor, forward: Any, backward: Any) -> DTensor:
    """`x` in the dtype `forward`, whose gradient comes back in the dtype `backward`; None leaves it as it is."""
    x = x if forward is None else x.to(forward)
    if backward is None or not (state.grad and x.requires_grad):
        return x
    result = x.detach()
    node = _CastBackward()
    node.dtype = backward
    start(node, [edge_of(x)], [result._array])
    attach(result, node)
    return result


def redistributed(x: DTensor, placements: Placements, *, recorded: bool = False) -> DTensor:
    """The same tensor, placed otherwise. `recorded`: its gradient comes back placed as the tensor is, even if that is how it is placed now."""
    spec = x._spec
    if spec.placements == placements and not (recorded and state.grad and x.requires_grad):
        return x
    for before, after in zip(spec.placements, placements, strict=True):
        if before != after and isinstance(after, _NormPartial):
            raise RuntimeError(f"Can not redistribute from {before} to {after}: norms of pieces can only be reduced")
    with DisableTorchFunction(), modes.no_grad():
        local = converted(x._local_tensor, spec.mesh, spec.shape, spec.placements, placements)
    if local is x._local_tensor:
        local = local.detach()
    result = wrapped(local, DTensorSpec(spec.mesh, placements, spec.tensor_meta))
    if state.grad and x.requires_grad:
        if any((p.is_partial() and p.reduce_op not in Partial.LINEAR_REDUCE_OPS) or isinstance(p, _NormPartial) for p in spec.placements):
            raise NotImplementedError(
                f"the derivative of reducing {spec.placements} over ranks is not implemented. Reduce a replicated tensor instead"
            )
        node = RedistributeBackward()
        node.placements = spec.placements
        start(node, [edge_of(x)], [result._array])
        attach(result, node)
    return result


# -- to and from plain tensors ------------------------------------------------------------------------------------------------


class _FromTorchTensorBackward(Node):
    placements: Placements

    def apply(self, grad: Any) -> list:
        return [to_local(redistributed(grad, self.placements))]


class _ToTorchTensorBackward(Node):
    spec: DTensorSpec
    placements: Placements

    def apply(self, grad: Any) -> list:
        return [from_local(grad, DTensorSpec(self.spec.mesh, self.placements, self.spec.tensor_meta))]


def _of_gradient(placements: Placements) -> Placements:
    """As the tensor; whole where it is in terms, for each term has the gradient of the sum."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


def from_local(local: Tensor, spec: DTensorSpec, grad_placements: Placements | None = None) -> DTensor:
    """A DTensor of which `local` is this rank's part."""
    result = wrapped(local.detach(), spec)
    if state.grad and local.requires_grad:
        node = _FromTorchTensorBackward()
        node.placements = grad_placements or _of_gradient(spec.placements)
        start(node, [edge_of(local)], [local._array])
        node.shape, node.numpy_dtype = result._array.shape, result._array.dtype
        attach(result, node)
    return result


def to_local(x: DTensor, grad_placements: Placements | None = None) -> Tensor:
    """This rank's part of a DTensor, as a plain tensor."""
    if not state.grad:
        return x._local_tensor
    local = x._local_tensor.detach()
    if x.requires_grad:
        node = _ToTorchTensorBackward()
        node.spec, node.placements = x._spec, grad_placements or _of_gradient(x._spec.placements)
        start(node, [edge_of(x)], [local._array])
        attach(local, node)
    return local
