"""Three prepared runs for a few minutes on a GPU: they only measure (docs/performance/gpu.md)."""
