"""Where libraries look for the class of nested tensors."""
