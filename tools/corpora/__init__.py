"""Readers of the texts that the demo, the studies in docs/ and some tests use."""
