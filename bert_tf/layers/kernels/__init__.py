"""The forms that the kernel of a `Dense` layer can have: one class per file.

Each has one method `apply(x, epilogue)`, which computes `x @ kernel` and what follows it, and
`fuses_feed_forward`: whether one op (`feed_forward`) computes two layers with this form of kernel.
A caller therefore does not need to know whether a kernel is trained, has LoRA, or is prepacked or
quantized.
The variables belong to the `Dense` layer, so files name them in the same way in every form.
"""
