"""Seeds faults of one line into a copy of the package and shows that a test finds each of them.

    python -m tests.seeded_faults [part of a path ...]

It prints one line per fault and ends with status 1 if a fault stays undetected, if the test that
finds it fails without it too, or if the line is not in the sources any more: then the entry must
follow the sources.
TensorFlow is imported once, and each test runs in a process forked from there.
"""

import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
COPIED = ("bert_tf", "research", "tests", "configure.py", "pyproject.toml")


class Fault(NamedTuple):
    """A line of bert_tf/`file`, what stands there instead, and the tests that must fail."""

    file: str
    line: str
    instead: str
    test: str


# fmt: off
FAULTS = [
    Fault("ops/fused_bias_gelu.py", "_TANH_CUBIC = 0.044715", "_TANH_CUBIC = 0.0447",
          "tests/conformance/test_ops.py -k gelu"),
    Fault("ops/fused_residual_layer_norm.py", "else tf.reduce_mean(z, axis=-1, keepdims=True)",
          "else 0.0 * tf.reduce_mean(z, axis=-1, keepdims=True)",
          "tests/conformance/test_ops.py -k residual"),
    Fault("ops/attention_rule.py", "tf.abs(query - key) <= self.window_size",
          "tf.abs(query - key) < self.window_size", "tests/layers/test_attention.py"),
    Fault("ops/attention_rule.py", "sees &= key <= query", "sees &= key < query",
          "tests/layers/test_attention.py"),
    Fault("ops/attention_rule.py", "distances = query - key  # [..., T, T]",
          "distances = key - query", "tests/layers/test_attention.py"),
    Fault("ops/attention_rule.py", "sees | is_attended if self.causal else",
          "sees & is_attended if self.causal else", "tests/layers/test_attention.py"),
    Fault("layers/attention/dot_product_attention.py", "scores * query.shape[-1] ** -0.5",
          "scores * query.shape[-2] ** -0.5", "tests/layers/test_attention.py"),
    Fault("layers/attention/token_layout.py",
          "batch = tf.where(self.padding_mask[:, :, tf.newaxis], batch, tf.zeros([], batch.dtype))",
          "batch *= tf.cast(self.padding_mask[:, :, tf.newaxis], batch.dtype)",
          "tests/layers/test_token_layout.py"),
    Fault("layers/attention/token_layout.py", "changed = (ids[1:] != ids[:-1]) |",
          "changed = (ids[1:] > ids[:-1]) |", "tests/layers/test_token_layout.py"),
    Fault("layers/attention/token_layout.py", "lengths = tf.reduce_sum(tf.cast(padding_mask, "
          "tf.int32), axis=1)  # [B, T] -> [B]", "lengths = tf.reduce_sum(tf.cast(padding_mask, "
          "tf.int32), axis=1, keepdims=False)[::-1]", "tests/layers/test_token_layout.py"),
    Fault("layers/attention/self_attention.py", "(values, sizes), places, axis=2)",
          "(values, sizes), sorted(places), axis=2)", "tests/layers/test_attention.py"),
    Fault("layers/attention/self_attention.py", "product = tf.cast(context, tf.float32) * factors",
          "product = tf.cast(context, tf.float32) * factors[:1]", "tests/layers/test_attention.py"),
    Fault("layers/embeddings.py", "places = positions + self.config.position_offset",
          "places = positions", "tests/layers/test_embeddings.py"),
    Fault("layers/embeddings.py", "return tf.tensor_scatter_nd_add(d_table,",
          "return tf.tensor_scatter_nd_update(d_table,", "tests/layers/test_embeddings.py"),
    Fault("layers/encoder_block.py", "wide = self.add_attended(rows, attended, training, "
          "dropout_seeds[1])", "wide = self.add_attended(rows, attended, training)",
          "tests/layers/test_encoder_block.py"),
    Fault("layers/residual_layer_norm.py", 'initializer="zeros")', 'initializer="ones")',
          "tests/layers/test_residual_norm.py"),
    Fault("layers/dropout.py", "+ tf.cast(stream, tf.int64)", "+ 0 * tf.cast(stream, tf.int64)",
          "tests/training/distribution/test_strategies.py"),
    Fault("layers/crf.py", "tf.where(words.read(place), reached, scores)", "reached",
          "tests/layers/test_crf.py"),
    Fault("layers/kernels.py", "self.kernel.assign_add(self.scale * addition)",
          "self.kernel.assign_add(addition)",
          "tests/models/test_lora.py tests/layers/test_dense.py"),
    Fault("inputs/batches.py", "sum(longest) * (rows + 1) if padded",
          "sum(longest) * rows if padded", "tests/inputs/test_token_budget.py"),
    Fault("inputs/row_packing.py", "if row[1] >= length and row[2] and",
          "if row[1] > length and row[2] and", "tests/inputs/test_row_packing.py"),
    Fault("inputs/long_texts.py", "counts = 1 + (beyond + stride - 1) // stride",
          "counts = 1 + beyond // stride", "tests/inputs/test_long_texts.py"),
    Fault("inputs/masking.py", "KEPT_SHARE = 0.1", "KEPT_SHARE = 0.2",
          "tests/inputs/test_masking.py"),
    Fault("text/packing.py", "share = limit - limit // 2", "share = limit // 2",
          "tests/text/test_tokenizer.py -k truncation"),
    Fault("text/wordpiece.py", "> self.max_input_chars_per_word",
          ">= self.max_input_chars_per_word",
          "tests/text/test_exactness.py -k longest_word"),
    Fault("training/optimizers/adam_weight_decay.py",
          "clip = self.clip_norm / tf.maximum(norm, self.clip_norm)",
          "clip = self.clip_norm / norm",
          "tests/training/optimizers"),
    Fault("training/optimizers/adam_weight_decay.py", "lowered = tf.maximum(scale * 0.5, 1.0)",
          "lowered = tf.maximum(scale * 2.0, 1.0)", "tests/training/optimizers"),
    Fault("training/optimizers/adam_weight_decay.py",
          "self.weight_decay_rate if self._is_decayed[index] else None", "self.weight_decay_rate",
          "tests/training/optimizers"),
    Fault("training/schedules.py", "self.learning_rate * (1.0 - done)",
          "self.learning_rate * (1.0 - done * done)", "tests/training/test_schedules.py"),
    Fault("training/schedules.py", "(self.learning_rate - self.final_rate)",
          "self.learning_rate", "tests/training/test_schedules.py"),
    Fault("training/schedules.py", "tf.float32) - first_step", "tf.float32)",
          "tests/training/test_schedules.py tests/training/test_run_schedule.py"),
    Fault("training/losses/ranking_losses.py",
          "(losses + tf.reduce_logsumexp(columns, axis=0) - right) / 2.0",
          "(losses + tf.reduce_logsumexp(columns, axis=1) - right) / 2.0",
          "tests/training/losses/test_sentence_losses.py"),
    Fault("training/losses/partial_loss.py", '"weights" if by_weights else "rows"', '"rows"',
          "tests/training/test_training_model.py"),
    Fault("adapt/distillation_losses.py",
          "return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)",
          "return temperature * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)",
          "tests/adapt/test_distillation_losses.py"),
    Fault("generation/logits_processors.py", "<= 1.0 - top_p", "< 1.0 - top_p",
          "tests/generation/test_logits_processors.py"),
    Fault("generation/stop_strings.py", "by_byte[:, shorter] if state else 0", "0",
          "tests/generation/test_stop_strings.py"),
    Fault("generation/beam_search.py", "state = take_rows(state, tf.reshape(parents + row_starts, "
          "[-1]))", "state = take_rows(state, tf.reshape(parents + 0 * row_starts, [-1]))",
          "tests/generation/test_beam_search.py tests/generation/test_decoding.py"),
    Fault("tasks/question_answering/answers.py", "is_context = (columns >= windows.offset",
          "is_context = (columns > windows.offset",
          "tests/tasks/question_answering/test_answers.py"),
    Fault("tasks/question_answering/answers.py",
          "self.score_difference > null_score_diff_threshold",
          "self.score_difference >= null_score_diff_threshold",
          "tests/tasks/question_answering/test_answers.py"),
    Fault("tasks/token_classification/tag_schemes.py", 'if scheme != "IOB1" or touches:',
          'if scheme != "IOB1":', "tests/tasks/token_classification/test_tag_schemes.py"),
    Fault("checkpoints/loading.py", 'names = {_id_of(key, path): str(name)',
          'names = {key: str(name)', "tests/checkpoints/test_file_labels.py"),
]
# fmt: on


def run(copy: pathlib.Path, *tests: str) -> tuple[int, str]:
    """Runs tests on a copy of the repository. Returns pytest's status and what it printed."""
    output = copy / "output"
    child = os.fork()
    if not child:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(copy)
        os.environ["PYTHONPATH"] = sys.path[0] = str(copy)
        for name in ("tests", "tests.seeded_faults"):
            sys.modules.pop(name, None)
        import pytest

        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])
        sys.stdout.flush()
        os._exit(int(status))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), output.read_text(errors="replace")


def copy_repository(copy: pathlib.Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, copy)
    os.symlink(REPOSITORY / ".cache", copy / ".cache")


def seed(copy: pathlib.Path, fault: Fault) -> str:
    """Puts a fault into the copy, runs its tests and takes it out. Returns what came of it."""
    path = copy / "bert_tf" / fault.file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    if source.count(fault.line) != 1:
        return f"NOT IN THE SOURCE {source.count(fault.line)} times"
    path.write_text(source.replace(fault.line, fault.instead), encoding="utf-8")
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    try:
        status, output = run(copy, *shlex.split(fault.test))
    finally:
        path.write_text(source, encoding="utf-8")
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    if status != 1:
        return "NOT FOUND" if status == 0 else f"BROKEN, status {status}:\n{output[-2000:]}"
    found = next(line for line in output.splitlines() if line.startswith(("FAILED", "ERROR")))
    test = found.split(maxsplit=1)[1].split(" - ")[0]
    status, output = run(copy, test)
    return f"found by {test}" if status == 0 else f"FAILS WITHOUT IT: {test}\n{output[-2000:]}"


def main(parts: list[str]) -> int:
    faults = [one for one in FAULTS if not parts or any(part in one.file for part in parts)]
    # What the children share, before TensorFlow has started a thread.
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tensorflow_text  # noqa: F401

    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory)
        copy_repository(copy)
        missed = 0
        for number, fault in enumerate(faults, 1):
            start = time.monotonic()
            outcome = seed(copy, fault)
            missed += not outcome.startswith("found")
            seconds = time.monotonic() - start
            print(f"{number:2d} {fault.file}: {outcome} ({seconds:.0f} s)", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults were found.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
