"""Readers of checkpoint formats: tensors by name, from files that are not trusted.

They raise a CheckpointError for a file that is missing, damaged or malicious.
"""
