"""The arrangements that the job `xla` compares."""

NATIVE = "no XLA"
XLA_NATIVE = "XLA, native ops"  # their lowerings, custom_ops/xla
XLA_PADDED = "XLA, native ops, padded"  # attention is TensorFlow's, on padding too
XLA_TENSORFLOW = "XLA, plain TensorFlow"

VARIANTS = (NATIVE, XLA_NATIVE, XLA_PADDED, XLA_TENSORFLOW)
