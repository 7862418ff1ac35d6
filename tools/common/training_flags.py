"""The flags that all programs that train have; `workers.py` and `training_run.py` read them."""

from bert_tf.tools.common.flag_table import define_flags

FLAG_HEADINGS = (("", "Devices and checkpoints"),)

# Copied from bert_tf.training.distribution.strategies, which imports TensorFlow: the flags are
# checked before that.
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server")
DTYPES = {"none": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def define():
    """Defines the flags for the devices, the dtype and the checkpoints of a run."""
    define_flags(f"""
        distribution_strategy ({"|".join(STRATEGIES)}, one_device): The tf.distribute
            strategy to train with.
        tpu_name (str): With --distribution_strategy=tpu: name or address of the TPU. Default: as
            the environment says.
        all_reduce_dtype (bfloat16|float32): The dtype in which replicas send each other their
            gradients and add them. With bfloat16, half as many bytes are sent. Default: the dtype
            of each gradient.
        all_reduce_bytes_per_pack (int >= 0, 0): Gradients are sent together until they have more
            bytes; 0: as TensorFlow chooses.
        mixed_precision ({"|".join(sorted(DTYPES))}, none): The dtype of the activations; `none` is
            float32. With float16 the loss is scaled.
        gradient_accumulation_steps (int >= 1, 1): Number of parts that each device splits its batch
            into to save memory; their gradients are accumulated before the optimizer step.
        save_checkpoints_steps (int >= 1, 1000): Number of steps between two checkpoints.
    """)
