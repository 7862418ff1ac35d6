"""What `tools/benchmark.py` runs: bert_tf beside what its users would pick instead.

Every peer lives in a worker process of its own (`worker.py`), so that no thread pool, allocator or
import of one can disturb another. The parent asks the workers in turn, one timed call at a time
(`timing.py`), which keeps drifts of the machine's clock out of the ratios.
"""
