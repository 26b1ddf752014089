"""torch._export: marks for an exporter, which programs set and nothing here reads."""
