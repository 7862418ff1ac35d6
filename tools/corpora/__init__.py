"""Readers of the corpora that the demo, the studies in docs/ and some tests use."""
