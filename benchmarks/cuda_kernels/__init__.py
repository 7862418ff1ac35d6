"""The CUDA kernels on PyTorch's tensors: their build, checks and times, without TensorFlow."""
