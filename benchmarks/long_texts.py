"""Measures the time and memory of BERT on one long text, with full attention and with a window.

    python -m benchmarks.long_texts --window=128 --lengths=512,1024,2048,4096

Prints a Markdown table. Each row is measured in a new process: the shortest time of several calls,
and the increase of the process's peak memory. The model has random weights, the sizes of BERT-base
and --num_layers blocks, on which the growth with the length does not depend.
"""

import multiprocessing
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor

from absl import flags

from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import positive_integers

from .memory_use import PEAK, resident_mib

FLAGS = flags.FLAGS
_CALLS = 3

flags.DEFINE_list("lengths", ["512", "1024", "2048", "4096"], "The lengths of the text in tokens.")
flags.DEFINE_integer(
    "window", 128, "Number of tokens to either side that a token attends to.", lower_bound=0
)
flags.DEFINE_integer("num_layers", 2, "Number of encoder blocks.", lower_bound=1)


def measure(length: int, window: int | None, num_layers: int) -> dict[str, float]:
    """Measures the time and memory of a forward pass, and of one with its gradient.

    Returns:
        `forward_ms`, `forward_mib`, `step_ms` and `step_mib`.
    """
    import tensorflow as tf

    from bert_tf import BertBackbone, BertConfig

    config = BertConfig(
        vocab_size=1000, num_hidden_layers=num_layers, max_position_embeddings=length
    )
    backbone = BertBackbone(config, attention_window=window)

    @tf.function(reduce_retracing=True)
    def forward(tokens):
        return backbone({"token_ids": tokens})["sequence_output"]

    @tf.function(reduce_retracing=True)
    def step(tokens):
        with tf.GradientTape() as tape:
            output = backbone({"token_ids": tokens}, training=True)["sequence_output"]
            loss = tf.reduce_mean(tf.square(output))
        return tape.gradient(loss, backbone.encoder.trainable_variables)

    results = {}
    for name, function in (("forward", forward), ("step", step)):
        for tokens in (2, 3):  # traces the function and allocates what any length needs
            function(tf.ones([1, tokens], tf.int32))
        before = resident_mib(PEAK)
        tokens = tf.random.uniform([1, length], 1, 1000, tf.int32, seed=1)
        seconds = []
        for _ in range(_CALLS):
            start = time.perf_counter()
            tf.nest.flatten(function(tokens))[0].numpy()
            seconds.append(time.perf_counter() - start)
        results[f"{name}_ms"] = 1000 * min(seconds)
        results[f"{name}_mib"] = resident_mib(PEAK) - before
    return results


def main():
    lengths = positive_integers("lengths")
    print("| tokens | attention | forward, ms | MiB | forward and gradient, ms | MiB |")
    print("|---:|---|---:|---:|---:|---:|")
    for length in lengths:
        for name, window in (("full", None), (f"window {FLAGS.window}, 1 global", FLAGS.window)):
            try:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    row = process.submit(measure, length, window, FLAGS.num_layers).result()
            except BrokenExecutor as error:
                raise UserError(
                    f"--lengths={length} must fit into memory. Received: {error}"
                ) from None
            print(
                f"| {length:,} | {name} |",
                *(f"{value:,.0f} |" for value in row.values()),
                flush=True,
            )


if __name__ == "__main__":
    tool.run(main)
