"""One stack of those who have a say in what an operation does."""
