"""Modules of the package that exist for programs written for PyTorch only: `flambeau._C` is the file `torch_names/_C/__init__.py`. See README.md."""

__path__ = []  # the package's own names this folder, so that nothing is to be had a second time, as flambeau.torch_names._C
