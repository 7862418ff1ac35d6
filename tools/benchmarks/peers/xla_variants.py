"""The variants that the job `xla` compares."""

NATIVE = "no XLA"
XLA_NATIVE = "XLA, native ops"  # with the lowerings in custom_ops/xla
XLA_PADDED = "XLA, native ops, padded"  # with TensorFlow's attention on padded batches
XLA_TENSORFLOW = "XLA, plain TensorFlow"

VARIANTS = (NATIVE, XLA_NATIVE, XLA_PADDED, XLA_TENSORFLOW)
