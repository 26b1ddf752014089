"""torch._functorch: the parts of vmap, for libraries that bring containers of their own. `torch.func` is what programs use."""
