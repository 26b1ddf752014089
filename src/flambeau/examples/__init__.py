"""Programs worth copying. They are written for PyTorch, and run unchanged under it or under Flambeau."""
