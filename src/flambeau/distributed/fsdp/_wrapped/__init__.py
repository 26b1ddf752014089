"""What FullyShardedDataParallel is made of; README.md of the folder above says in which order to read it."""
