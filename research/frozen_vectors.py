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
from absl import flags

import bert_tf
from bert_tf.errors import require
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
    import tensorflow as tf

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


def best_on_dev(models, inputs, ids):
    """Returns the scores on test of the model with the best AUC on dev, and its key.

    Args:
        models: Untrained classifiers by their keys.
        inputs: For each key the inputs of train, dev and test.
        ids: The classes of train and dev.
    """
    from sklearn.metrics import roc_auc_score

    best_auc, best = -1.0, None
    for key, model in models.items():
        train, dev, test = inputs[key]
        model.fit(train, ids[0])
        auc = roc_auc_score(ids[1], model.predict_proba(dev)[:, 1])
        if auc > best_auc:
            best_auc, best = auc, (model.predict_proba(test)[:, 1], key)
    return best


def by_words(texts, ids):
    """Returns what `best_on_dev` does, for TF-IDF of characters. The key is C."""
    models = {C: tf_idf.baseline(analyzer="char", longest=3, C=C) for C in _TF_IDF_C}
    return best_on_dev(models, dict.fromkeys(models, texts), ids)


def by_vectors(vectors, ids):
    """Returns what `best_on_dev` does, for vectors by layers. The keys are layer and C."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = {
        (layer, C): make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300))
        for layer in vectors
        for C in _C
    }
    return best_on_dev(models, {key: vectors[key[0]] for key in models}, ids)


def main():
    from scipy.special import logit
    from sklearn.metrics import roc_auc_score

    task = task_from_flags()
    labels = given_labels() or task.labels
    parts = [read_examples(task, split, labels) for split in ("train", "dev", "test")]
    sizes, layers = ([int(one) for one in values] for values in (FLAGS.num_labels, FLAGS.layers))
    require(max(sizes) <= len(parts[0]), f"must be at most {len(parts[0])}", num_labels=sizes)
    drawn = {
        (size, seed): np.random.default_rng(int(seed)).permutation(len(parts[0]))[:size]
        for size in sizes
        for seed in FLAGS.seeds
    }
    # Only the texts that are drawn are encoded.
    needed = np.unique(np.concatenate([*drawn.values()]))
    parts[0] = [parts[0][number] for number in needed]
    ids = [np.array([labels.index(example.label) for example in part]) for part in parts]
    texts = [[example.text_a for example in part] for part in parts]
    backbone = bert_tf.BertBackbone.from_pretrained(FLAGS.init_checkpoint)
    tokenizer = bert_tf.text.load_tokenizer(FLAGS.init_checkpoint)
    options = layers, FLAGS.max_seq_length
    vectors = [vectors_of(backbone, tokenizer, part, *options) for part in texts]

    print("labels\tseed\tTF-IDF\tvectors\tboth\tlayer\tC")
    for (size, seed), numbers in drawn.items():
        rows = np.searchsorted(needed, numbers)
        targets = ids[0][rows], ids[1]
        counted, _ = by_words([[texts[0][row] for row in rows], *texts[1:]], targets)
        by_layer = {
            layer: (vectors[0][place][rows], vectors[1][place], vectors[2][place])
            for place, layer in enumerate(layers)
        }
        known, (layer, C) = by_vectors(by_layer, targets)
        both = sum(logit(np.clip(scores, 1e-6, 1 - 1e-6)) for scores in (counted, known))
        aucs = (f"{roc_auc_score(ids[2], scores):.4f}" for scores in (counted, known, both))
        print(size, seed, *aucs, layer, C, sep="\t", flush=True)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "init_checkpoint", "layers"])
    tool.run(main)
