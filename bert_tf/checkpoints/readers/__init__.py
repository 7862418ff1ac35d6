"""Readers of checkpoint formats: tensors by name, from files that are not trusted."""
