"""torch._functorch.config: settings that a program gives a compiler. They are kept, and read by nobody: torch.compile needs none of them here."""

# Whether results of custom operators that share memory with arguments are looked for while compiling. They always are, when the operator runs.
check_custom_op_aliasing = True
error_on_custom_op_aliasing = False
donated_buffer = False
activation_memory_budget = 1.0
