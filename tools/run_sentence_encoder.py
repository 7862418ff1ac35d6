r"""Trains a BERT sentence encoder (Sentence-BERT), evaluates it and encodes texts with it.

    bert-tf run_sentence_encoder --init_checkpoint=uncased_L-12_H-768_A-12 \
      --objective=classification --train_file=nli.tsv --dev_file=sts-dev.tsv --score_scale=5 \
      --do_train --do_eval --output_dir=out

--train_file and --dev_file are .tsv or .csv files with a header, or .jsonl files. --dev_file has
the columns sentence1, sentence2 and score. The columns of --train_file depend on --objective:

    classification                   sentence1, sentence2, label
    contrastive, online_contrastive  sentence1, sentence2, label: 1 or 0
    cosine, cosent, angle            sentence1, sentence2, score
    batch_hard_triplet               text, label; the same for batch_all_triplet and
                                     batch_semi_hard_triplet
    ranking                          anchor, positive, any number of negatives: negative,
                                     negative_1, negative_2, …, in .jsonl files also a list of texts
    triplet                          anchor, positive, negative
    margin_mse                       anchor, positive, negatives as above, and scores: those that a
                                     cross-encoder gives to positive and negatives; or label: the
                                     positive's score minus that of each negative

With --pairs_per_text, files of pairs have the columns text and label instead.

With --do_distill_static, the encoder of --init_checkpoint is first distilled into static
embeddings (model2vec): a vector for each token, whose mean is the vector of a text. They are
over a hundred times faster than the encoder and less accurate, and can be trained like it.

The tool writes to --output_dir:

    model/              the trained model: a directory that sentence-transformers can open, too, and
                        for static embeddings also model2vec
    checkpoints/        from which the same command resumes a killed run, but not with --keep_best
    eval_results.txt    the Pearson and Spearman correlations of cosines and scores, with --do_eval
    vectors.npy         the vectors of the texts in --encode_file, with --do_encode
    lora.safetensors    the LoRA weights, with --lora_rank
"""

import os

import numpy as np

from bert_tf.base.array_files import save_array
from bert_tf.base.files import atomic_path
from bert_tf.config import POOLING_MODES
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.tools.common import fine_tuning, fine_tuning_flags, result_files, tool, workers
from bert_tf.tools.common.checks import flag_error, options_of, positive_integers
from bert_tf.tools.common.console import predicting_verbose, print_model
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.text_files import read_single_texts
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

PAIR_OBJECTIVES = ("angle", "contrastive", "cosent", "cosine", "online_contrastive")
# The keys of `SENTENCE_LOSSES`, whose module imports TensorFlow.
BATCH_OBJECTIVES = ("batch_all_triplet", "batch_hard_triplet", "batch_semi_hard_triplet")
TEXT_OBJECTIVES = ("classification", "margin_mse", "ranking", "triplet")
OBJECTIVES = (*PAIR_OBJECTIVES, *BATCH_OBJECTIVES, *TEXT_OBJECTIVES)

define_flags(f"""
    train_file (str): The file with the examples to train on.
    dev_file (str): The file with scored pairs, for --do_eval and after each epoch.
    encode_file (str): The file with the texts to encode, one per line.
    init_checkpoint (str): The model to start from: a directory of sentence-transformers, Hugging
        Face or TF1. Without --do_train: the trained model (default: the one in --output_dir).
    do_distill_static (bool, false): Whether to distill the model into static embeddings, before
        all other work.
    do_train (bool, false): Whether to train the model.
    do_eval (bool, false): Whether to evaluate the model on --dev_file.
    do_encode (bool, false): Whether to encode the texts of --encode_file.
    objective ({"|".join(sorted(OBJECTIVES))}, ranking): What the model learns.
        classification: the label of a pair. contrastive: to bring pairs with label 1 together, and
        to keep pairs with label 0 apart; online_contrastive: only the hard pairs of a batch.
        cosine: the cosine of a pair; cosent and angle: the order of the pairs by their scores.
        ranking: to rank the positive above the other texts of the batch. triplet: to keep the
        negative farther away than the positive; batch_hard_triplet: the same with the hardest texts
        of a batch, of which several should have the same label (--texts_per_label);
        batch_all_triplet: with all texts; batch_semi_hard_triplet: with the closest negatives that
        are farther away than the positive.
        margin_mse: the differences between a cross-encoder's scores.
    texts_per_label (int >= 2): With the batch_ objectives: batches have several labels, and each of
        them at least this often. An epoch lacks the texts that are left over. Default: batches in
        any order.
    pairs_per_text (int >= 0, 0): For objectives on pairs: --train_file has single texts with a
        class. Each is paired with this number of texts of its class (label or score 1), and with as
        many of other classes (0). 0: the file has pairs.
    classifier_hidden_size (int >= 1): With --objective=classification: size of a dense layer with
        ReLU before the softmax layer, such as 512. Default: no such layer.
    classifier_dropout (float 0 to 1, 0.0): With --objective=classification: dropout rate before the
        softmax layer.
    score_scale (float >= 1e-6, 1.0): The scores in the files are divided by this; 5 for the STS
        data sets.
    scale (float >= 1e-6, 20.0): With --objective=ranking, cosent or angle: the similarities are
        multiplied by this.
    similarity (cosine|dot): With --objective=ranking or margin_mse: how vectors are compared.
        Default: cosine, for margin_mse dot.
    in_batch_negatives (bool, true): With --objective=ranking: whether the texts of other examples
        are negatives. If false, the file must have negatives.
    symmetric (bool, false): With --objective=ranking: whether the anchor is also ranked above the
        other anchors of the batch, for its positive.
    mini_batch_size (int >= 1): With --objective=ranking: maximum number of examples that are
        encoded at once, for batches that need more memory than there is. Default: the whole batch.
    num_negatives (int >= 1): With --objective=ranking: number of the other texts of the batch that
        each anchor is compared with, drawn in each step. Default: all.
    no_duplicates (bool, false): With --objective=ranking: whether no text may be in two examples of
        a batch, where it would be a wrong negative. An epoch lacks the examples for which no batch
        is left.
    guide_dir (str): With --objective=ranking: the directory of a sentence encoder. Texts of the
        batch that it finds more similar than the positive are no negatives (GISTEmbedLoss).
        Default: all are.
    margin_strategy (absolute|relative, absolute): With --guide_dir: whether --margin is a
        difference of cosines, or a share of the positive's.
    matryoshka_dims (list, []): Also trains vectors of these numbers of dimensions, the first ones,
        such as 384,128,32; not with --objective=classification.
    matryoshka_weights (list, []): With --matryoshka_dims: a factor of the loss for each. Default:
        1.
    distance (euclidean|cosine): The distance between vectors. Default: cosine for the contrastive
        objectives, euclidean for the triplets.
    margin (float >= 1e-6): With the objectives on triplets: how much farther away the negative must
        be than the positive (default 1; of batches 5). Contrastive: how far apart pairs with
        label 0 should be (0.5). With --guide_dir: how much less similar than the positive a
        negative must be (0).
    pooling ({"|".join(POOLING_MODES)}): How the tokens of a text are pooled to its vector. Default:
        as the checkpoint says, or mean.
    normalize (bool): Whether to scale the vectors to length 1. Default: as the checkpoint says, or
        false.
    max_seq_length (int): Maximum length of a text in tokens. Default: as the checkpoint says.
    pca_dims (int >= 0, 256): With --do_distill_static: the size of the static vectors. 0: that of
        the encoder's, without a principal component analysis.
    sif_coefficient (float 0 to 1, 1e-4): With --do_distill_static: the smaller it is, the less
        frequent tokens count. 0: all tokens count the same.
    vocabulary_file (str): With --do_distill_static: a file with words, one per line, that become
        tokens. Default: none.
    whitening_file (str): A file with texts, one per line. After training, the vectors are whitened
        by the mean and covariance of the vectors of these texts. Default: no whitening.
    whitening_size (int): With --whitening_file: size of the whitened vectors. Default: the number
        of directions in which the vectors of the texts vary.
""")
fine_tuning_flags.define_training(learning_rate=2e-5, num_train_epochs=1.0)
fine_tuning_flags.define_class_weights()
fine_tuning_flags.define_epoch_flags("val_spearman or val_pearson")


def read_train_data():
    """Returns the texts, the labels (None if the objective has none) and the loss."""
    from bert_tf.inputs.negative_pairs import pairs_by_class
    from bert_tf.tasks.sentence_embedding import files
    from bert_tf.training import losses
    from bert_tf.training.losses.sentence_loss import SENTENCE_LOSSES

    if FLAGS.pairs_per_text:
        texts, names = pairs_by_class(
            *files.read_labelled_texts(FLAGS.train_file), FLAGS.pairs_per_text, FLAGS.seed
        )
    elif FLAGS.objective == "classification":
        texts, names = files.read_labelled_pairs(FLAGS.train_file)
    if FLAGS.objective == "classification":
        classes = sorted(set(map(str, names)))
        if len(classes) < 2:
            expected = "have at least two different labels"
            raise user_error(FLAGS.train_file, expected, classes, DataError)
        ids = {name: index for index, name in enumerate(classes)}
        labels = np.array([ids[str(name)] for name in names], np.int32)
        loss = fine_tuning.class_loss(labels, len(classes))
        loss = None if loss == "auto" else loss
        options = options_of(hidden_size="classifier_hidden_size", dropout="classifier_dropout")
        return texts, labels, losses.ClassificationLoss(len(classes), loss, **options)
    if FLAGS.objective in PAIR_OBJECTIVES:
        if not FLAGS.pairs_per_text:
            texts, names = files.read_scored_pairs(FLAGS.train_file, FLAGS.score_scale)
        loss, options = getattr(losses, SENTENCE_LOSSES[FLAGS.objective]), {}
        if FLAGS.objective in ("angle", "cosent"):
            options = options_of("scale")
        elif FLAGS.objective != "cosine":
            options = options_of("distance", "margin")
        return texts, np.array(names, np.float32), loss(**options)
    if FLAGS.objective in BATCH_OBJECTIVES:
        texts, names = files.read_labelled_texts(FLAGS.train_file)
        _, labels = np.unique(list(map(str, names)), return_inverse=True)
        options = options_of("distance", "margin", "texts_per_label")
        return texts, labels, getattr(losses, SENTENCE_LOSSES[FLAGS.objective])(**options)
    if FLAGS.objective == "margin_mse":
        texts, labels = files.read_scored_triplets(FLAGS.train_file)
        return texts, labels / FLAGS.score_scale, losses.MarginMSELoss(**options_of("similarity"))
    texts = files.read_triplets(FLAGS.train_file)
    if FLAGS.objective == "ranking":
        return texts, guide_vectors(texts) if FLAGS.guide_dir else None, ranking_loss()
    if len(texts) != 3:
        expected = "have one column `negative` for --objective=triplet"
        raise user_error(FLAGS.train_file, expected, f"{len(texts) - 2} negatives", DataError)
    return texts, None, losses.TripletLoss(**options_of("distance", "margin"))


def matryoshka_weights():
    try:
        return list(map(float, FLAGS.matryoshka_weights))
    except ValueError:
        raise flag_error("matryoshka_weights", "must be numbers") from None


def guide_vectors(texts):
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

    guide = BertSentenceEncoder.from_pretrained(FLAGS.guide_dir)
    return np.stack([guide.encode(column) for column in texts], axis=1)  # [n, K, G]


def ranking_loss():
    from bert_tf.training import losses

    options = options_of("no_duplicates")
    if FLAGS.mini_batch_size is not None:
        options["mini_batch_size"] = FLAGS.mini_batch_size
    if FLAGS.guide_dir:
        options.update(options_of("margin", "margin_strategy"))
        return losses.GISTEmbedLoss(1 / FLAGS.scale, **options)
    names = ("scale", "symmetric", "similarity", "num_negatives", "in_batch_negatives")
    options.update(options_of(*names))
    if FLAGS.mini_batch_size is None:
        return losses.MultipleNegativesRankingLoss(**options)
    return losses.CachedMultipleNegativesRankingLoss(**options)


def load_encoder():
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

    path = FLAGS.init_checkpoint or os.path.join(FLAGS.output_dir, "model")
    options = options_of("pooling", "normalize", max_length="max_seq_length")
    with workers.strategy().scope():
        encoder = BertSentenceEncoder.from_pretrained(path, **options)
        return distilled(encoder) if FLAGS.do_distill_static else encoder


def distilled(encoder):
    from bert_tf.adapt.static_embeddings import distill_static

    words = read_single_texts(FLAGS.vocabulary_file) if FLAGS.vocabulary_file else None
    options = {"pca_dims": FLAGS.pca_dims or None, "sif_coefficient": FLAGS.sif_coefficient or None}
    static = distill_static(encoder, words, **options, verbose=predicting_verbose())
    for name, value in options_of("normalize", max_length="max_seq_length").items():
        setattr(static, name, value)
    return static


def train(encoder, texts, labels, loss, dev_data):
    import keras

    def report(epoch, logs):
        results = correlations(encoder, *dev_data)
        print(f"epoch {epoch + 1}:", *result_files.score_lines(results), sep="  ")
        logs.update({f"val_{name}": value for name, value in results.items()})

    batches = TrainingBatches(encoder, texts, labels)
    fine_tuning.compile_model(encoder, batches.num_steps, objective=loss)
    run = TrainingRun(encoder, batches, ("train_file", "init_checkpoint", "objective"))
    run.fit([keras.callbacks.LambdaCallback(on_epoch_end=report)] if dev_data else [])


def correlations(encoder, texts, scores):
    from bert_tf.config import REGRESSION
    from bert_tf.training.evaluation.scores import all_scores

    count = len(scores)
    vectors = encoder.encode(texts[0] + texts[1])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(norms > 0, norms, 1)
    cosines = np.sum(vectors[:count] * vectors[count:], axis=1)
    results = all_scores(np.array(scores), cosines, REGRESSION)
    return {name: results[name] for name in ("pearson", "spearman") if name in results}


def check_flags():
    """Refuses flags that do not fit together, before any work."""
    works = {
        "do_distill_static": ("init_checkpoint",),
        "do_train": ("init_checkpoint", "train_file"),
        "do_eval": ("dev_file",),
        "do_encode": ("encode_file",),
    }
    fine_tuning_flags.check_flags(works, has_dev=bool(FLAGS.dev_file))
    if FLAGS.whitening_file and not FLAGS.do_train:
        raise flag_error(
            "do_train", "must be true with --whitening_file, as only training writes the model"
        )
    if FLAGS.objective != "classification" and fine_tuning_flags.changes_loss():
        expected = "be used with --objective=classification"
        received = f"--objective={FLAGS.objective}"
        raise user_error("--label_smoothing, --focal_gamma and --class_weights", expected, received)
    if FLAGS.pairs_per_text and FLAGS.objective not in ("classification", *PAIR_OBJECTIVES):
        rule = f"must be classification or one of {PAIR_OBJECTIVES} with --pairs_per_text"
        raise flag_error("objective", rule, "pairs_per_text")
    if FLAGS.guide_dir and FLAGS.num_negatives:
        raise flag_error("num_negatives", "must not be set with --guide_dir, which chooses them")
    if FLAGS.guide_dir and FLAGS.symmetric:
        expected = "be false with --guide_dir, whose loss compares all texts of a batch"
        raise user_error("--symmetric", expected, "--symmetric")
    if not FLAGS.in_batch_negatives and (FLAGS.symmetric or FLAGS.num_negatives):
        expected = "be true with --symmetric or --num_negatives, which need the batch"
        raise user_error("--in_batch_negatives", expected, "--noin_batch_negatives")
    if FLAGS.guide_dir and (FLAGS.similarity == "dot" or not FLAGS.in_batch_negatives):
        received = f"similarity={FLAGS.similarity}, in_batch_negatives={FLAGS.in_batch_negatives}"
        expected = "be cosine and --in_batch_negatives true with --guide_dir"
        raise user_error("--similarity", expected, received)
    if positive_integers("matryoshka_dims") and FLAGS.objective == "classification":
        raise UserError(
            "--objective must not be classification with --matryoshka_dims: the classifier takes "
            "vectors of one size. Received: --objective=classification"
        )
    if len(matryoshka_weights()) not in (0, len(FLAGS.matryoshka_dims)):
        raise flag_error("matryoshka_weights", "must be a number for each of --matryoshka_dims")
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.dev_file:
        from bert_tf.training.evaluation.scores import require_scikit_learn

        require_scikit_learn()


def write_vectors(encoder, texts):
    """Writes the vectors of texts to vectors.npy in --output_dir."""
    vectors = encoder.encode(texts, verbose=predicting_verbose())
    path = os.path.join(FLAGS.output_dir, "vectors.npy")
    with atomic_path(path) as new:
        save_array(new, vectors)
    print(f"{len(vectors)} vectors of size {vectors.shape[1]} in {path}")


def main():
    check_flags()
    import keras

    from bert_tf.tasks.sentence_embedding.files import read_scored_pairs
    from bert_tf.training import MatryoshkaLoss

    workers.strategy()
    keras.utils.set_random_seed(FLAGS.seed)
    # All files are read before any work; --guide_dir encodes the texts of the last one.
    dev_data = read_scored_pairs(FLAGS.dev_file, FLAGS.score_scale) if FLAGS.dev_file else None
    encode_texts = read_single_texts(FLAGS.encode_file) if FLAGS.do_encode else None
    whitening_texts = read_single_texts(FLAGS.whitening_file) if FLAGS.whitening_file else None
    train_data = read_train_data() if FLAGS.do_train else None
    encoder = load_encoder()
    if FLAGS.do_train:
        *examples, loss = train_data
        if dims := positive_integers("matryoshka_dims"):
            loss = MatryoshkaLoss(loss, dims, matryoshka_weights() or None)
        train(encoder, *examples, loss, dev_data)
        if whitening_texts:
            encoder.fit_whitening(whitening_texts, FLAGS.whitening_size)
    if FLAGS.do_train or FLAGS.do_distill_static:
        fine_tuning.save_model(encoder)
    if FLAGS.do_eval:
        result_files.report(result_files.score_lines(correlations(encoder, *dev_data)))
    if FLAGS.do_encode:
        write_vectors(encoder, encode_texts)
    if FLAGS.do_train or FLAGS.do_distill_static:
        print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "output_dir")
