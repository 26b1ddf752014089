"""torch._ops: the classes of operators, by the path under which programs import them."""

from flambeau import import_only, ops
from flambeau.library.keys import DispatchKey
from flambeau.operators.overloads import Namespace, OpOverload, OpOverloadPacket

__all__ = ["DispatchKey", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "TorchBindOpOverload", "ops"]

_OpNamespace = Namespace
OperatorBase, HigherOrderOperator, TorchBindOpOverload = import_only.classes(
    "torch._ops",
    "OperatorBase HigherOrderOperator TorchBindOpOverload",
    "operators here are OpOverloads; those that take functions (cond, while_loop) are functions",
)
