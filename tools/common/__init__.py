"""Flags and helpers that several programs share."""
