"""torch.ao.quantization.fx: quantization of graphs, of which there are none here; some of its functions are for anyone."""
