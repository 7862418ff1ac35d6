"""What measures bert_tf: `python -m benchmarks` compares it with other libraries ("peers").

Every peer runs in its own worker process (`worker.py`), so that the thread pools, allocators and
imports of the peers do not disturb each other. The parent process measures the workers in turn
(`timing.py`), so that changes of the machine's clock frequency do not distort the ratios.
"""
