r"""Removes the least important attention heads of a fine-tuned text classifier or regressor.

    bert-tf prune_heads --task_name=sst-2 --data_dir=SST-2 --model_dir=out/model \
      --prune_share=0.3 --output_dir=pruned

The importance of a head measures how strongly the loss on the task's examples depends on its output
(Michel et al. 2019, arXiv 1905.10650). The heads of all blocks are compared, and every block keeps
at least one. With --num_rounds=k, each of k rounds prunes one k-th of the heads; the importance of
the others is measured again before each round.

The tool writes to --output_dir:

    model/                 the pruned model: a Hugging Face directory with tokenizer and labels, and
                           `pruned_heads` in its config.json
    head_importance.tsv    one line per head: its importance when it was last measured, and the
                           round in which it was pruned
    eval_results.txt       the number of parameters and the scores of the dev file, before and after

bert-tf run_classifier --do_train --init_checkpoint=pruned/model fine-tunes the pruned model.
"""

import os
import random

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tools.common import result_files, tool
from bert_tf.tools.common.checks import flag_error, require_other_directory
from bert_tf.tools.common.console import print_model
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.model_comparison import print_positive_class, scores_of
from bert_tf.tools.common.task_flags import (
    inputs_and_targets,
    known_labels,
    load_classifier,
    read_examples,
    task_from_flags,
)

define_flags("""
    model_dir (str): The directory of the model, such as --output_dir/model of bert-tf
        run_classifier.
    output_dir (str): The directory to write the pruned model and the results to.
    prune_share (float 0 to 1): Share of all heads that are pruned at the end, including those that
        the model lacks already.
    num_rounds (int >= 1, 1): Number of rounds of measuring and pruning.
    importance_split (train|dev, train): The file whose examples the importance is measured on.
    max_importance_examples (int >= 1, 1000): Maximum number of examples to measure on; of more, a
        random sample is used.
    importance_batch_size (int >= 1, 32): Batch size for measuring.
    normalize_importance (bool, true): Whether to divide the importances of a block by their L2 norm
        before the heads of different blocks are compared.
    max_seq_length (int): Maximum sequence length in tokens; longer text is truncated. Default: as
        the model says.
    do_eval (bool, true): Whether to score the dev file before and after the pruning.
    seed (int, 12345): Seed of the sample of examples.
""")

KEPT, BEFORE = "kept", "before"  # in head_importance.tsv, for heads that no round pruned


def load_model(task):
    """Returns the model and the number of heads for --prune_share, with those that it lacks."""
    model = load_classifier(task, FLAGS.model_dir, "pruned")
    model.backbone.require_kernels("pruned")
    config = model.backbone.config
    num_heads = config.num_hidden_layers * config.num_attention_heads
    count = round(FLAGS.prune_share * num_heads)
    least, most = sum(map(len, config.pruned_heads.values())), num_heads - config.num_hidden_layers
    if not least < count <= most:
        raise UserError(
            f"--prune_share must make more than {least} and at most {most} of {num_heads} heads: "
            f"{least} are pruned already, and every block keeps one. Received: "
            f"--prune_share={FLAGS.prune_share}"
        )
    return model, count


def prune(model, count, examples):
    """Prunes the model in rounds, until it lacks `count` heads.

    Returns:
        The importance `[L, N]` of every head when it was last measured, and a dictionary from each
        pruned head to the round in which it was pruned, or `BEFORE`.
    """
    from bert_tf.adapt import head_importance, least_important_heads

    model.compile()  # for the task's loss
    inputs, targets = inputs_and_targets(model, examples)
    config = model.backbone.config
    importance = np.zeros([config.num_hidden_layers, config.num_attention_heads])
    fates = {
        (block, head): BEFORE for block, heads in config.pruned_heads.items() for head in heads
    }
    before = len(fates)
    options = (FLAGS.importance_batch_size, FLAGS.normalize_importance)
    for number in range(1, FLAGS.num_rounds + 1):
        measured = head_importance(model, inputs, targets, *options, verbose=1)
        config = model.backbone.config
        for block in range(config.num_hidden_layers):
            kept = config.kept_heads(block)
            importance[block, kept] = measured[block, kept]
        pruned = before + (count - before) * number // FLAGS.num_rounds
        heads = least_important_heads(measured, count=pruned, pruned_heads=config.pruned_heads)
        fates.update({(block, head): number for block in heads for head in heads[block]})
        model.prune_heads(heads)
        print(f"round {number}: pruned {sum(map(len, heads.values()))} heads: {heads}")
    return importance, fates


def main():
    if not 0 < FLAGS.prune_share < 1:
        raise flag_error("prune_share", "must be in (0, 1)")
    new_model = os.path.join(FLAGS.output_dir, "model")
    require_other_directory(new_model, "model_dir", "which is kept")
    tool.require_writable(FLAGS.output_dir, "output_dir")
    from bert_tf.training.evaluation.scores import require_scikit_learn

    if FLAGS.do_eval:
        require_scikit_learn()
    task = task_from_flags()
    labels = known_labels(task, FLAGS.model_dir)
    examples = read_examples(task, FLAGS.importance_split, labels)
    if FLAGS.max_importance_examples < len(examples):
        examples = random.Random(FLAGS.seed).sample(examples, FLAGS.max_importance_examples)
    dev_examples = read_examples(task, "dev", labels) if FLAGS.do_eval else None
    model, count = load_model(task)
    if FLAGS.do_eval:
        dev = inputs_and_targets(model, dev_examples)

    def measured(when):
        size = f"{when}_parameters = {model.count_params()}"
        scores = scores_of(model, *dev) if FLAGS.do_eval else {}
        return size, result_files.score_lines(scores, f"{when}_")

    size_before, lines_before = measured("before")
    importance, fates = prune(model, count, examples)
    size_after, lines_after = measured("after")
    model.save_pretrained(new_model, format="auto")
    lines = ["block\thead\timportance\tpruned_in_round"]
    for (block, head), value in np.ndenumerate(importance):
        lines.append(f"{block}\t{head}\t{value:.6g}\t{fates.get((block, head), KEPT)}")
    result_files.write_lines(os.path.join(FLAGS.output_dir, "head_importance.tsv"), lines)
    lines = [size_before, size_after, *lines_before, *lines_after]
    result_files.report(lines, title="Pruning")
    print_positive_class(model)
    print_model()


if __name__ == "__main__":
    tool.run(main, "task_name", "data_dir", "model_dir", "prune_share", "output_dir")
