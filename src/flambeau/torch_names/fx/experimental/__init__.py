"""torch.fx.experimental: what is asked about sizes that a compiler does not know yet. All sizes are known here."""
