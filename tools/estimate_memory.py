r"""Estimates the memory that a pre-training run needs on each device, before it is started.

    bert-tf estimate_memory --model=large --train_batch_size=256 --precision=mixed_bfloat16
    bert-tf estimate_memory --model=config.json --train_batch_size=64 --memory_gib=16
    bert-tf estimate_memory --model=large --train_batch_size=64 --pipeline_stages=4 \
      --gradient_accumulation_steps=16

It prints the memory of weights, gradients, the optimizer's slots and activations. With --memory_gib
it also prints the fewest --gradient_accumulation_steps with which the run fits.
"""

import dataclasses
import os

from bert_tf.config import BertConfig
from bert_tf.errors import user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.training_memory import (
    OBJECTIVES,
    PRECISIONS,
    PretrainingRun,
    stage_memory,
)

_MODELS = {"base": BertConfig.base, "large": BertConfig.large}
_GIB = 2**30

define_flags(f"""
    model (str, base): base, large, or the JSON file of a configuration.
    train_batch_size (int >= 1, 32): Sequences per step, over all devices.
    max_seq_length (int >= 4, 128): Length of a row in tokens.
    real_tokens (float 1e-3 to 1, 1.0): Mean share of the tokens of a row that are not padding. The
        native ops compute only these.
    max_predictions_per_seq (int >= 1, 20): Mean number of predicted words per row.
    objective ({"|".join(OBJECTIVES)}, mlm_nsp): As in run_pretraining.
    precision ({"|".join(PRECISIONS)}, float32): The dtype policy of the model.
    ops (native|reference, native): The value of BERT_TF_OPS in the run. Plain TensorFlow
        (reference), which `auto` selects on accelerators, also computes the padding and stores the
        attention scores.
    num_replicas (int >= 1, 1): Devices that divide a batch.
    pipeline_stages (int >= 1, 1): Devices that divide the blocks.
    gradient_accumulation_steps (int >= 1, 1): Parts of the batch of each replica.
    gradient_checkpointing (bool, false): Whether blocks are computed again.
    memory_gib (float >= 1e-3): Memory of a device in GiB that the run can use.
""")


def make_run() -> PretrainingRun:
    """Returns the run of the flags.

    Raises:
        UserError: If they contradict each other.
    """
    if FLAGS.model not in _MODELS and not os.path.isfile(FLAGS.model):
        raise flag_error("model", f"must be {', '.join(_MODELS)}, or a JSON file")
    config = _MODELS.get(FLAGS.model, lambda: BertConfig.from_json_file(FLAGS.model))()
    batch, parts = FLAGS.train_batch_size, FLAGS.num_replicas * FLAGS.gradient_accumulation_steps
    most_replicas = 1 if FLAGS.pipeline_stages > 1 else FLAGS.num_replicas
    for name, limit, what in (
        ("max_seq_length", config.max_position_embeddings, "the length of the model"),
        ("max_predictions_per_seq", FLAGS.max_seq_length, "the length of the rows"),
        ("pipeline_stages", config.num_hidden_layers, "the number of blocks"),
        ("num_replicas", most_replicas, "as a pipeline is not replicated"),
    ):
        if FLAGS[name].value > limit:
            raise flag_error(name, f"must be at most {limit}, {what}")
    if batch % parts:
        expected = f"be a multiple of --num_replicas × --gradient_accumulation_steps, {parts}"
        raise user_error("--train_batch_size", expected, f"--train_batch_size={batch}")
    names = [field.name for field in dataclasses.fields(PretrainingRun)]
    return PretrainingRun(config, **{name: FLAGS[name].value for name in names[1:]})


def fewest_parts(run: PretrainingRun) -> int | None:
    """Returns the smallest number of parts with which every stage fits into --memory_gib."""
    batch = run.train_batch_size // run.num_replicas
    for parts in range(1, batch + 1):
        smaller = dataclasses.replace(run, gradient_accumulation_steps=parts)
        stages = (stage_memory(smaller, stage).total for stage in range(run.pipeline_stages))
        if batch % parts == 0 and max(stages) <= FLAGS.memory_gib * _GIB:
            return parts
    return None


def main():
    run = make_run()
    print("GiB per device")
    for stage in range(run.pipeline_stages):
        memory = stage_memory(run, stage)
        purposes = dataclasses.asdict(memory).items()
        parts = " + ".join(f"{name} {size / _GIB:.2f}" for name, size in purposes)
        print(f"stage {stage}: {parts} = {memory.total / _GIB:.2f}")
    if FLAGS.memory_gib is None:
        return
    for checkpointing in (False, True):
        parts = fewest_parts(dataclasses.replace(run, gradient_checkpointing=checkpointing))
        how = f"--gradient_accumulation_steps={parts}" if parts else "no number of parts fits"
        print(f"{'with' if checkpointing else 'without'} --gradient_checkpointing: {how}")


if __name__ == "__main__":
    tool.run(main)
