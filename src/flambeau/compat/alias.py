"""An import finder under which `torch` is Flambeau: `torch.nn.functional` is `flambeau.nn.functional`, one module under both names.

Note [one module, two names]
    Python looks modules up by name in `sys.modules`. Each module of Flambeau is put there under its torch name too, as soon as it has run
    (`adopt`). So `import torch.nn` and `import flambeau.nn` give the same object, classes agree, pickles with either name can be read, and a
    module keeps its own `__package__` and `__spec__`, on which its relative imports depend, and its `__name__`; only the package itself
    says that it is called torch, which libraries that patch it ask. A torch name asked for before the module behind it was imported goes
    through `find_spec`, whose loader imports that module and hands it over instead of running it again.

This file, linked.py and missing.py import nothing of the package: every Python process that a program starts loads them at once, by their paths
(startup/sitecustomize.py), and imports Flambeau only if it imports torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from flambeau.compat.linked import can_do_without, first_for_pytorch, shared_objects
from flambeau.compat.missing import no_module, unwatch, watch

PACKAGES = {"torch": "flambeau", "torchvision": "flambeau.vision", "functorch": "flambeau.functorch"}
# What PyTorch calls by a name that nothing has inside Flambeau.
ELSEWHERE = {"torch.storage": "flambeau.tensor.memory.typed_storage"}
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the folder the package lies in


class Alias:
    """The finder. It stands first in `sys.meta_path`, before those that would find an installed PyTorch."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """How to import `name`, if it is torch's or Flambeau's own."""
        root = name.partition(".")[0]
        if root == "flambeau":
            return self._own(name, path, target)
        if root not in PACKAGES:
            return None
        real = find(real_name(name))
        if real is None:
            if being_imported():
                raise no_module(name)
            return None  # somebody only wants to know whether it is there
        loader: Any = Borrowed(real)
        spec = ModuleSpec(name, loader, origin=real.origin, is_package=real.submodule_search_locations is not None)
        spec.submodule_search_locations = real.submodule_search_locations
        spec.has_location = real.has_location
        return spec

    def _own(self, name: str, path: Any, target: ModuleType | None) -> ModuleSpec | None:
        """A module of Flambeau, found as always, to be adopted when it has run."""
        if name == "flambeau":
            spec = PathFinder.find_spec(name, [HOME], target)  # the one this file belongs to, wherever the program lies
        else:
            others = (f.find_spec for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
            spec = next((found for find_spec in others if (found := find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_adopt(module: ModuleType) -> None:
                run(module)
                adopt(module)

            spec.loader.exec_module = run_and_adopt  # type: ignore[method-assign]
        return spec

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """What importlib.metadata says about torch and torchvision: a version, although nothing of that name need be installed."""
        if context.name in PACKAGES:
            from flambeau.compat.distribution import pretended

            yield from pretended(context.name)

    def __repr__(self) -> str:
        return "<flambeau.compat: torch means Flambeau>"


class OnPath(PathFinder):
    """Python's own finder, in its place: packages that are compiled for PyTorch itself look as if they were not installed (linked.py)."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """How to import `name`, found as always."""
        spec = super().find_spec(name, path, target)
        if spec is None or path is not None or name in sys.stdlib_module_names:
            return spec
        compiled = first_for_pytorch(shared_objects(spec))
        if compiled is None or can_do_without(spec.origin, compiled):
            return spec
        if being_imported():
            words = f"{name} is compiled for PyTorch, so it counts as not installed while torch means Flambeau: {compiled} needs libtorch"
            raise ModuleNotFoundError(words, name=name)
        return None

    @staticmethod
    def find_distributions(*context: Any, **options: Any) -> Iterator[Any]:  # type: ignore[override]
        """What importlib.metadata finds, but for those packages if they are asked for by name."""
        named = context and context[0].name is not None
        for found in PathFinder.find_distributions(*context, **options):
            paths = [str(found.locate_file(path)) for path in found.files or ()] if named else []
            compiled = first_for_pytorch(paths)
            if compiled is None or can_do_without(os.path.join(os.path.dirname(compiled), "__init__.py"), compiled):
                yield found


class Borrowed:
    """The loader of a torch name: it hands over the module of Flambeau, imported if need be."""

    def __init__(self, real: ModuleSpec):
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        try:
            __import__(self.real.name)
        except ModuleNotFoundError as problem:
            if self.real.name != "flambeau":
                raise
            sentence = f"torch means Flambeau here, and {sys.executable} cannot import Flambeau: {problem}"
            raise ModuleNotFoundError(sentence, name=problem.name) from problem
        module = sys.modules[self.real.name]
        self.own = module.__spec__  # the import system replaces it before it calls exec_module
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own

    def get_code(self, name: str) -> Any:
        """For `python -m torch.x`."""
        return self.real.loader.get_code(self.real.name)


def real_name(name: str) -> str:
    """The module of Flambeau behind a name of torch."""
    root, _, rest = name.partition(".")
    return ELSEWHERE.get(name) or f"{PACKAGES[root]}.{rest}".removesuffix(".")


def torch_name(name: str) -> str | None:
    """What programs written for PyTorch call this module of Flambeau; None if they have no name for it."""
    for alias, real in ELSEWHERE.items():
        if name == real:
            return alias
    for package, home in reversed(PACKAGES.items()):  # torchvision's home lies inside torch's
        if name == home or name.startswith(f"{home}."):
            alias = package + name[len(home) :]
            return None if alias in ELSEWHERE else alias
    return None


def own_name(module: ModuleType) -> str:
    """The name a module was imported by, whatever it is called now."""
    return getattr(module.__spec__, "name", module.__name__)


def find(name: str) -> ModuleSpec | None:
    """How to import this module of Flambeau; its parents are imported to find out."""
    from importlib.util import find_spec

    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None  # a parent is not there


def being_imported() -> bool:
    """Whether `find_spec` was called by an import statement, not by a question such as importlib.util.find_spec("torch.fx")."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name in ("find_spec", "_find_spec"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


def adopt(module: ModuleType) -> None:
    """Give a module of Flambeau, which has just run, its torch name."""
    own = own_name(module)
    alias = torch_name(own)
    if alias is None:
        return
    sys.modules[alias] = module
    watch(module, alias)
    _say_where_classes_live(module)
    if own in ("flambeau", "flambeau.version"):
        from flambeau.torch_version import compatible

        module.__version__ = compatible
    if own == "flambeau":
        module.__name__ = alias


_renamed: dict[type, str] = {}  # classes that say they live in torch, and where they said they live before


def _say_where_classes_live(module: ModuleType) -> None:
    """Let a module's classes be called what PyTorch's are: print(type(x)) says <class 'torch.Tensor'>, and libraries ask for that name.

    A package has run after the modules it imports, and may have given them further names: they are seen to with it, once more.
    """
    package = sys.modules.get("flambeau")
    if module is not package and getattr(package, "_find", None) is None:
        return
    from flambeau.torch_homes import THEIRS, torch_home

    own = set(dir(package))
    inside = f"{own_name(module)}."
    imported = [found for name, found in list(sys.modules.items()) if name.startswith(inside)] if hasattr(module, "__path__") else []
    for room in (module, *imported):
        home = own_name(room)
        for name, kind in list(vars(room).items()):
            if not isinstance(kind, type) or kind.__module__ != home or kind.__name__ != name:
                continue
            alias = torch_home(home, name)
            if alias == THEIRS and name not in own:
                continue  # nothing that programs know of
            if alias != torch_name(home) and alias not in sys.modules and find(real_name(alias)) is None:
                continue  # a pickle could not name it
            _renamed[kind], kind.__module__ = home, alias


# -- putting it in place, and taking it away ---------------------------------------------------------------------------------------------

_active: Alias | None = None


def install() -> None:
    """Let `torch` mean Flambeau in this process. RuntimeError if PyTorch itself is in it already."""
    global _active
    for package in PACKAGES:
        stranger = sys.modules.get(package)
        if stranger is not None and not own_name(stranger).startswith("flambeau"):
            raise RuntimeError(
                f"{package} has been imported already, from {getattr(stranger, '__file__', 'somewhere')}: it cannot become Flambeau any "
                "more. Call flambeau.compat.install_as_torch() before anything imports torch (in a notebook: restart the kernel first)."
            )
    if _active is None:
        _active = Alias()
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "flambeau" and isinstance(module, ModuleType):
                adopt(module)
    if _active not in sys.meta_path:
        sys.meta_path.insert(0, _active)
    _replace_finder(PathFinder, OnPath)


def uninstall() -> None:
    """Let `torch` mean what it meant before. What a program already holds of Flambeau it keeps."""
    global _active
    if _active is None:
        return
    if _active in sys.meta_path:
        sys.meta_path.remove(_active)
    _replace_finder(OnPath, PathFinder)
    _active = None
    for name, module in list(sys.modules.items()):
        root = name.partition(".")[0]
        if root in PACKAGES and own_name(module).startswith("flambeau"):
            del sys.modules[name]
        elif root == "flambeau" and isinstance(module, ModuleType):
            unwatch(module)
    while _renamed:
        kind, home = _renamed.popitem()
        kind.__module__ = home
    for name in ("flambeau", "flambeau.version"):
        if name in sys.modules:
            from flambeau.version import flambeau_version

            sys.modules[name].__name__, sys.modules[name].__version__ = name, flambeau_version


def _replace_finder(before: Any, after: Any) -> None:
    sys.meta_path[:] = [after if finder is before else finder for finder in sys.meta_path]


def is_installed() -> bool:
    """Whether `torch` means Flambeau now."""
    return _active is not None
