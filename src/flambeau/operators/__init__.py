"""Operations by the names of PyTorch's operators, and what those say of themselves."""

from collections.abc import Callable

# What the door hands down: "run" imports the room that runs operators, "named" finds a public function, ...
ABOVE: dict[str, Callable] = {}
