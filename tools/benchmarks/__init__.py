"""The benchmarks of `tools/benchmark.py`, which compare bert_tf with other libraries ("peers").

Every peer runs in its own worker process (`worker.py`), so that the thread pools, allocators and
imports of the peers do not disturb each other. The parent process measures the workers in turn
(`timing.py`), so that changes of the machine's clock frequency do not distort the ratios.
"""
