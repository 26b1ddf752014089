"""torch.utils._pytree: nested containers as a flat list of leaves and a specification to put them back.

Lists, tuples, named tuples, dictionaries, deques are containers; a class becomes one by `register_pytree_node`. Whatever else there is, None
included, is a leaf.

>>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
>>> leaves, tree_unflatten([x * 10 for x in leaves], spec)
([1, 2, 3], {'a': [10, 20], 'b': (30,)})
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from flambeau.batching import trees
from flambeau.ops.results import NamedResult

PyTree = Any
Context = Any
FlattenFn = Callable[[PyTree], tuple[list, Context]]
UnflattenFn = Callable[[Iterable, Context], PyTree]
IsLeaf = Callable[[PyTree], bool] | None


# -- where a leaf is ---------------------------------------------------------------------------------------------------------------------


class SequenceKey(NamedTuple):
    """The place in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"

    def get(self, container: Any) -> Any:
        """What is there."""
        return container[self.idx]


class MappingKey(NamedTuple):
    """The place in a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, container: Any) -> Any:
        """What is there."""
        return container[self.key]


class GetAttrKey(NamedTuple):
    """The place in an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, container: Any) -> Any:
        """What is there."""
        return getattr(container, self.name)


def keystr(kp: Iterable) -> str:
    """A path as it would be written in a program: `['layers'][0].weight`."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable) -> Any:
    """What is at the end of a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# -- kinds of containers -----------------------------------------------------------------------------------------------------------------


class NodeDef(NamedTuple):
    """How a kind of container is taken apart and put together."""

    type: type
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: Callable | None = None


SUPPORTED_NODES: dict[type, NodeDef] = trees.REGISTERED


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable | None = None,
    from_dumpable_context: Callable | None = None,
    flatten_with_keys_fn: Callable | None = None,
) -> None:
    """Make a class a container: flatten_fn(object) -> (children, context), unflatten_fn(children, context) -> object."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def register_constant(cls: type) -> None:
    """Make a class a container with nothing in it: its objects are compared, and are never leaves."""
    for method in ("__eq__", "__hash__"):
        if getattr(cls, method) is getattr(object, method) or getattr(cls, method) is None:
            raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `{method}` implementation, found {cls}")
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class was made by namedtuple, or is made from such a one."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple(obj: Any) -> bool:
    """Whether something is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether something is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is one of named results that C makes, such as time.struct_time, or that operations have here: torch.return_types.max."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    made_by_c = isinstance(cls, type) and tuple in cls.__bases__ and all(isinstance(getattr(cls, n, None), int) for n in counts)
    return made_by_c or (isinstance(cls, type) and issubclass(cls, NamedResult))


def is_structseq_instance(obj: Any) -> bool:
    """Whether something is a result of such a class."""
    return is_structseq_class(type(obj))


def _sequence_keys(items: Iterable) -> list:
    return [(SequenceKey(i), item) for i, item in enumerate(items)]


def _list_flatten(d: list) -> tuple[list, Context]:
    return d, None


def _list_unflatten(values: Iterable, context: Context) -> list:
    return list(values)


def _list_flatten_with_keys(d: list) -> tuple[list, Context]:
    return _sequence_keys(d), None


_tuple_flatten_with_keys: Callable = _list_flatten_with_keys


def _tuple_flatten(d: tuple) -> tuple[list, Context]:
    return list(d), None


def _tuple_unflatten(values: Iterable, context: Context) -> tuple:
    return tuple(values)


def _namedtuple_flatten(d: Any) -> tuple[list, Context]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable, context: Context) -> Any:
    return context(*values)


def _dict_flatten(d: dict) -> tuple[list, Context]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict) -> tuple[list, Context]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable, context: Context) -> dict:
    return dict(zip(context, values, strict=True))


def _ordereddict_unflatten(values: Iterable, context: Context) -> OrderedDict:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: defaultdict) -> tuple[list, Context]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_flatten_with_keys(d: defaultdict) -> tuple[list, Context]:
    return [(MappingKey(key), value) for key, value in d.items()], [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable, context: Context) -> defaultdict:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _deque_flatten(d: deque) -> tuple[list, Context]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable, context: Context) -> deque:
    return deque(values, maxlen=context)


def namedtuple(*args: Any) -> Any:
    """Stands for all named tuples in the table of kinds."""
    raise TypeError("namedtuple stands for a kind of container, and makes none")


for _kind, _flatten, _unflatten, _with_keys in (
    (list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
    (tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
    (namedtuple, _namedtuple_flatten, _namedtuple_unflatten, lambda d: ([(GetAttrKey(n), getattr(d, n)) for n in d._fields], type(d))),
    (dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    (OrderedDict, _dict_flatten, _ordereddict_unflatten, _dict_flatten_with_keys),
    (defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
    (deque, _deque_flatten, _deque_unflatten, lambda d: (_sequence_keys(d), d.maxlen)),
):
    register_pytree_node(_kind, _flatten, _unflatten, flatten_with_keys_fn=_with_keys)  # type: ignore[arg-type]


def _get_node_type(tree: Any) -> Any:
    """The kind of a container: its class, or `namedtuple` for every named tuple that is not registered."""
    kind = type(tree)
    return kind if kind in SUPPORTED_NODES or not is_namedtuple_class(kind) else namedtuple


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether something is no container."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


# -- taking apart and putting together ---------------------------------------------------------------------------------------------------


class TreeSpec:
    """A tree without its leaves."""

    def __init__(self, type: Any, context: Context = None, children_specs: list[TreeSpec] | None = None):
        self.type, self.context, self.children_specs = type, context, children_specs or []
        self.num_children = len(self.children_specs)
        self.num_leaves: int = 1 if type is None else sum(child.num_leaves for child in self.children_specs)
        self.num_nodes: int = 1 + sum(child.num_nodes for child in self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it stands for a leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The specifications of what is directly inside."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The specification of one of them."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable) -> PyTree:
        """The tree with these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: PyTree) -> list:
        """What a tree has in the places of this specification's leaves: they may be whole trees."""
        if self.is_leaf():
            return [tree]
        kind = _get_node_type(tree)
        if kind is not self.type and not (kind in _MAPPINGS and self.type in _MAPPINGS):
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        inside, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if kind in _MAPPINGS:
            keys, own = _keys(kind, context), _keys(self.type, self.context)
            if set(keys) != set(own):
                raise ValueError(f"Node keys mismatch; expected {own}, but got {keys}.")
            inside = [tree[key] for key in own]
        if len(inside) != self.num_children:
            raise ValueError(f"Node arity mismatch: {self.num_children} children are expected, found {len(inside)}.")
        return [leaf for child, below in zip(self.children_specs, inside, strict=True) for leaf in child.flatten_up_to(below)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        """From the second on, each child begins a line, two columns further in than its parent."""
        if self.is_leaf():
            return "*"
        children = f",\n{' ' * (indent + 2)}".join(child._text(indent + 2) for child in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The specification of a leaf."""

    def __init__(self) -> None:
        super().__init__(None)


_MAPPINGS = (dict, OrderedDict, defaultdict)
_LEAF = LeafSpec()


def _keys(kind: type, context: Context) -> list:
    return context[1] if kind is defaultdict else context


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list, TreeSpec]:
    """(leaves in order, specification)."""
    leaves: list = []
    return leaves, _take_apart(tree, leaves, is_leaf)


def _take_apart(tree: PyTree, leaves: list, is_leaf: IsLeaf) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _get_node_type(tree)
    inside, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_take_apart(item, leaves, is_leaf) for item in inside])


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> PyTree:
    """The tree of this specification with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of PyTreeSpec but got {type(treespec)}.")
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: {len(leaves)} leaves for a spec that holds {treespec.num_leaves} items ({treespec}).")
    return _put_together(iter(leaves), treespec)


def _put_together(leaves: Iterator, spec: TreeSpec) -> PyTree:
    if spec.is_leaf():
        return next(leaves)
    return SUPPORTED_NODES[spec.type].unflatten_fn([_put_together(leaves, child) for child in spec.children_specs], spec.context)


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list | None:
    """One value for each leaf of a specification: a leaf of `tree` stands for everything below its place. None if it does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) is not treespec.type:
        return None
    inside, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(inside) != treespec.num_children or context != treespec.context:
        return None
    parts = [_broadcast_to_and_flatten(item, child, is_leaf) for item, child in zip(inside, treespec.children_specs, strict=True)]
    return None if any(part is None for part in parts) else [value for part in parts for value in part or ()]


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator:
    """The leaves, one by one."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list:
    """The leaves, in order."""
    return tree_flatten(tree, is_leaf)[0]


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list:
    """The leaves of all arguments of a call, in order."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_leaves(tree)]


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The specification."""
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[tuple, Any]], TreeSpec]:
    """([(path, leaf)], specification)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[tuple, Any]]:
    """The leaves, each with its path."""
    return list(_walk((), tree, is_leaf))


def _walk(path: tuple, tree: PyTree, is_leaf: IsLeaf) -> Iterator[tuple[tuple, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"{node.type} was registered without flatten_with_keys_fn, which paths need. Pass one to register_pytree_node.")
    for key, below in node.flatten_with_keys_fn(tree)[0]:
        yield from _walk((*path, key), below, is_leaf)


# -- functions of leaves -----------------------------------------------------------------------------------------------------------------


def tree_map(func: Callable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """The tree with func(leaf, what the others have in its place) for every leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*items) for items in zip(leaves, *others, strict=True)], spec)


def tree_map_with_path(func: Callable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """The same, with func(path, leaf, ...)."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(path, leaf, *items) for (path, leaf), *items in zip(found, *others, strict=True)], spec)


def tree_map_(func: Callable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Call func for every leaf, for what it does; the tree itself is returned."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for items in zip(leaves, *(spec.flatten_up_to(rest) for rest in rests), strict=True):
        func(*items)
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable], Callable]:
    """A decorator: the function for leaves of these types (or for which a predicate holds), others stay as they are."""
    matches = _matcher(type_or_types_or_pred)
    return lambda func: lambda leaf: func(leaf) if matches(leaf) else leaf


def _matcher(what: Any) -> Callable[[Any], bool]:
    if isinstance(what, (type, tuple)) or not callable(what):
        return lambda leaf: isinstance(leaf, what)
    return what


def tree_map_only(type_or_types_or_pred: Any, /, func: Callable, tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map` for leaves of these types."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, /, func: Callable, tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map_` for leaves of these types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds for a leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds for every leaf of these types."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds for a leaf of these types."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))
