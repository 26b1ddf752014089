"""Operations by the names of PyTorch's operators, and what those say of themselves."""
