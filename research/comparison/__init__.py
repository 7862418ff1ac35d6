"""What research/compare_encoders.py compares: data, encoders, runs and their tables."""
