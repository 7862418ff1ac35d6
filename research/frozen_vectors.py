r"""Scores what a frozen encoder knows: a logistic regression on its vectors, for few labels.

    python -m research.frozen_vectors --task_name=simple --data_dir=reviews --labels=neg,pos \
        --init_checkpoint=e5 --layers=8,9,10,11,12 --num_labels=500,1000,2000 --seeds=1,2,3

The vector of a text is the mean of its tokens' vectors after a layer, next to their maximum. For
each number of labels and each seed, that many training examples are drawn; a TF-IDF baseline of
characters learns from the same ones. The dev file chooses the layer and the regularization of each
model, and the test file is read once. "Both" is the sum of the two models' logits. The table has
AUC, so the task has two classes.
"""

import numpy as np
import tensorflow as tf
from absl import flags
from scipy.special import logit

import bert_tf
from bert_tf.tools.common import tool
from bert_tf.tools.common.task_flags import given_labels, read_examples, task_from_flags

from . import tf_idf

FLAGS = flags.FLAGS

_BATCH = 32
_C = (1e-4, 1e-3, 1e-2, 0.1)  # for vectors, whose columns are scaled
_TF_IDF_C = (1.0, 3.0, 10.0, 30.0)

flags.DEFINE_string("init_checkpoint", None, "The directory of the encoder.")
flags.DEFINE_list("layers", None, "The layers to try, from 1; 0 is the embeddings.")
flags.DEFINE_list("num_labels", ["500", "1000", "2000"], "The numbers of training examples.")
flags.DEFINE_list("seeds", ["1", "2", "3"], "The seeds that draw the training examples.")
flags.DEFINE_integer("max_seq_length", 128, "Longer texts are truncated to this many tokens.")


def vectors_of(backbone, tokenizer, texts, layers, max_length):
    """Returns float32 `[layers, n, 2H]`: mean and maximum of the tokens after each layer."""

    @tf.function(reduce_retracing=True)
    def pooled(tokens):
        states = backbone(tokens, output_hidden_states=True)["hidden_states"]
        real = tokens["padding_mask"][..., tf.newaxis]
        count = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
        return [
            tf.concat(
                [
                    tf.reduce_sum(tf.where(real, states[layer], 0.0), axis=1) / count,
                    tf.reduce_max(tf.where(real, states[layer], states[layer].dtype.min), axis=1),
                ],
                axis=-1,
            )
            for layer in layers
        ]

    order = np.argsort([len(text) for text in texts], kind="stable")
    found = None
    for start in range(0, len(texts), _BATCH):
        numbers = order[start : start + _BATCH]
        tokens = tokenizer([texts[number] for number in numbers], max_length=max_length)
        batch = np.stack([vectors.numpy() for vectors in pooled(tokens)])
        if found is None:
            found = np.zeros([len(layers), len(texts), batch.shape[-1]], np.float32)
        found[:, numbers] = batch
    return found


def best_on_dev(models, train, train_ids, dev, dev_ids):
    """Returns the model with the best AUC on dev, its AUC and its number among `models`."""
    from sklearn.metrics import roc_auc_score

    tried = []
    for number, (model, inputs, dev_inputs) in enumerate(zip(models, train, dev, strict=True)):
        model.fit(inputs, train_ids)
        scores = model.predict_proba(dev_inputs)[:, 1]
        tried.append((roc_auc_score(dev_ids, scores), -number, model))
    auc, number, model = max(tried, key=lambda entry: entry[:2])
    return model, auc, -number


def main():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    task = task_from_flags()
    labels = given_labels() or task.labels
    train, dev, test = (read_examples(task, split, labels) for split in ("train", "dev", "test"))
    layers = [int(layer) for layer in FLAGS.layers]
    sizes = [int(size) for size in FLAGS.num_labels]
    seeds = [int(seed) for seed in FLAGS.seeds]
    ids = [np.array([labels.index(e.label) for e in part]) for part in (train, dev, test)]
    drawn = {
        (size, seed): np.random.default_rng(seed).permutation(len(train))[:size]
        for size in sizes
        for seed in seeds
    }
    needed = np.unique(np.concatenate(list(drawn.values())))
    place = {number: row for row, number in enumerate(needed)}
    texts = [[train[n].text_a for n in needed], *([e.text_a for e in part] for part in (dev, test))]
    backbone = bert_tf.BertBackbone.from_pretrained(FLAGS.init_checkpoint)
    tokenizer = bert_tf.text.load_tokenizer(FLAGS.init_checkpoint)
    vectors = [
        vectors_of(backbone, tokenizer, part, layers, FLAGS.max_seq_length) for part in texts
    ]

    print("labels\tseed\tTF-IDF\tvectors\tboth\tlayer\tC")
    for (size, seed), numbers in drawn.items():
        rows = [place[number] for number in numbers]
        train_ids = ids[0][numbers]
        words = [tf_idf.baseline(analyzer="char", longest=3, C=C) for C in _TF_IDF_C]
        count = len(words)
        chosen = [texts[0][row] for row in rows]
        counter, _, _ = best_on_dev(words, [chosen] * count, train_ids, [texts[1]] * count, ids[1])
        options = [(layer, C) for layer in range(len(layers)) for C in _C]
        heads = [
            make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300))
            for _, C in options
        ]
        head, _, best = best_on_dev(
            heads,
            [vectors[0][layer][rows] for layer, _ in options],
            train_ids,
            [vectors[1][layer] for layer, _ in options],
            ids[1],
        )
        layer, C = options[best]
        by_words = counter.predict_proba(texts[2])[:, 1]
        by_vectors = head.predict_proba(vectors[2][layer])[:, 1]
        both = logit(by_words) + logit(np.clip(by_vectors, 1e-6, 1 - 1e-6))
        aucs = [roc_auc_score(ids[2], scores) for scores in (by_words, by_vectors, both)]
        columns = [f"{auc:.4f}" for auc in aucs]
        print(size, seed, *columns, layers[layer], C, sep="\t", flush=True)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "init_checkpoint", "layers"])
    tool.run(main)
