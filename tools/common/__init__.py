"""Flags and helpers that several tools share."""
