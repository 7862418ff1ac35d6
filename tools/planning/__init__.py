"""Estimates memory and time of a pre-training run; `tools/plan_training.py` is the program.

No module here imports TensorFlow: measurements run in the workers of `benchmarks`.
"""
