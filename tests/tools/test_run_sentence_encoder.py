"""tools/run_sentence_encoder.py, run as a user runs it, on a tiny model."""

import json

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.training.losses.sentence_loss import SENTENCE_LOSSES
from tests.tasks.sentence_embedding.test_training import FIRSTS, HALVES, SAME, SECONDS, spearman
from tests.tools.running import results_in, run


def test_trains_evaluates_and_encodes(tiny_config, tiny_vocabulary, tmp_path):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    keras.utils.set_random_seed(5)
    BertBackbone(tiny_config).save_pretrained(checkpoint)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(checkpoint)
    rows = [
        json.dumps({"sentence1": a, "sentence2": b, "score": 5 * int(same)})
        for a, b, same in zip(FIRSTS, SECONDS, SAME)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    (tmp_path / "texts.txt").write_text("\n".join(FIRSTS))
    result = run(
        "run_sentence_encoder",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={output}",
        "--objective=cosine",
        f"--train_file={tmp_path}/pairs.jsonl",
        f"--dev_file={tmp_path}/pairs.jsonl",
        "--score_scale=5",
        f"--encode_file={tmp_path}/texts.txt",
        "--do_train",
        "--do_eval",
        "--do_encode",
        "--normalize",
        "--pooling=max",
        "--learning_rate=1e-3",
        "--num_train_epochs=8",
        "--train_batch_size=16",
        f"--whitening_file={tmp_path}/texts.txt",
        "--whitening_size=4",
        "--layer_decay=0.95",
        "--keep_best=val_spearman",
    )
    assert result.returncode == 0, result.stderr
    last = result.stdout.split("epoch 8:")[1].splitlines()[0]
    # Of two groups of ties the best is 0.866; untrained these weights have 0.1 to 0.3.
    assert float(last.split("eval_spearman = ")[1]) > 0.8
    values = results_in(output / "eval_results.txt")
    assert values.keys() == {"eval_pearson", "eval_spearman"}
    vectors = np.load(output / "vectors.npy")
    encoder = BertSentenceEncoder.from_pretrained(output / "model")
    assert (encoder.pooling, encoder.normalize, encoder.whitening_size) == ("max", True, 4)
    np.testing.assert_allclose(vectors, encoder.encode(FIRSTS), atol=1e-5)
    assert len(vectors) == len(HALVES[0])
    # What is evaluated is what is saved: four directions of the texts' own, not of the task's.
    assert float(values["eval_spearman"]) == pytest.approx(spearman(encoder), abs=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("guided", [False, True])
def test_trains_on_large_batches_for_vectors_of_several_sizes(
    tiny_config, tiny_vocabulary, tmp_path, guided
):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    BertBackbone(tiny_config).save_pretrained(checkpoint)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(checkpoint)
    pairs = [json.dumps({"anchor": a, "positive": b}) for a, b in zip(FIRSTS, SECONDS)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs))
    result = run(
        "run_sentence_encoder",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={output}",
        "--objective=ranking",
        f"--guide_dir={checkpoint}" if guided else "--symmetric",
        "--no_duplicates",
        "--mini_batch_size=3",
        "--matryoshka_dims=32,8",
        f"--train_file={tmp_path}/pairs.jsonl",
        "--do_train",
        "--train_batch_size=16",
    )
    assert result.returncode == 0, result.stderr
    assert BertSentenceEncoder.from_pretrained(output / "model").encode("good").shape == (32,)


OBJECTIVE_CASES = {
    # The objective, what an example of the file has, and further flags.
    "angle": ("angle", ("sentence1", "sentence2", "score"), ["--score_scale=2"]),
    "negatives": (
        *("ranking", ("anchor", "positive", "negative_1", "negative_2")),
        ["--noin_batch_negatives", "--similarity=dot", "--scale=1"],
    ),
    "margins": (
        *("margin_mse", ("anchor", "positive", "negative_1", "negative_2", "scores")),
        ["--score_scale=2"],
    ),
    "hard": ("batch_hard_triplet", ("text", "label"), ["--margin=0.2", "--texts_per_label=4"]),
    "hard pairs": (
        *("online_contrastive", ("sentence1", "sentence2", "label")),
        ["--matryoshka_dims=32,8", "--matryoshka_weights=1,0.5"],
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(each, marks=pytest.mark.full) for each in ("angle", "hard pairs", "hard")),
        "negatives",
        "margins",
    ],
)
def test_objectives(tiny_config, tiny_vocabulary, tmp_path, case):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    BertBackbone(tiny_config).save_pretrained(checkpoint)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(checkpoint)
    objective, names, flags = OBJECTIVE_CASES[case]
    rows = [
        {name: FIRSTS[row - place] for place, name in enumerate(names)}
        | {name: int(SAME[row]) for name in names if name in ("score", "label")}
        | {name: [2.0, 1.0, row / 32] for name in names if name == "scores"}
        for row in range(32)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = run(
        "run_sentence_encoder",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={output}",
        f"--objective={objective}",
        f"--train_file={tmp_path}/train.jsonl",
        "--do_train",
        "--train_batch_size=16",
        *flags,
    )
    assert result.returncode == 0, result.stderr
    assert BertSentenceEncoder.from_pretrained(output / "model").encode("good").shape == (32,)


def test_all_losses_with_a_name_are_objectives(tmp_path):
    result = run("run_sentence_encoder", f"--output_dir={tmp_path}", "--objective=pairs")
    assert result.returncode == 1 and "|".join(sorted(SENTENCE_LOSSES)) in result.stderr


def test_pairs_of_classes(tiny_config, tiny_vocabulary, tmp_path):
    """Single texts with classes become pairs, for a classifier with a hidden layer."""
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    BertBackbone(tiny_config).save_pretrained(checkpoint)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(checkpoint)
    rows = [json.dumps({"text": a, "label": int(h)}) for a, h in zip(FIRSTS, HALVES[0])]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    result = run(
        "run_sentence_encoder",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={output}",
        "--objective=classification",
        "--pairs_per_text=2",
        "--classifier_hidden_size=32",
        "--classifier_dropout=0.5",
        f"--train_file={tmp_path}/texts.jsonl",
        "--do_train",
        "--learning_rate=1e-3",
        "--num_train_epochs=2",
        "--train_batch_size=32",
    )
    assert result.returncode == 0, result.stderr
    assert BertSentenceEncoder.from_pretrained(output / "model").encode("good").shape == (32,)


def test_flags_are_checked_before_any_work(tmp_path):
    for flags, message in (
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--objective=classification", "--matryoshka_dims=8"),
            ),
            "--objective must not be classification with --matryoshka_dims",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--guide_dir=x", "--symmetric"),
            ),
            "--symmetric must be false with --guide_dir",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--objective=triplet", "--pairs_per_text=1"),
            ),
            "--objective must be classification or one of ('angle', 'contrastive'",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--guide_dir=x", "--num_negatives=3"),
            ),
            "--num_negatives must not be set with --guide_dir",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--noin_batch_negatives", "--symmetric"),
            ),
            "--in_batch_negatives must be true with --symmetric or --num_negatives",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--guide_dir=x", "--similarity=dot"),
            ),
            "--similarity must be cosine and --in_batch_negatives true with --guide_dir",
        ),
        (
            (
                *("--do_train", "--init_checkpoint=x", "--train_file=x"),
                *("--matryoshka_dims=8,4", "--matryoshka_weights=1"),
            ),
            "--matryoshka_weights must be a number for each of --matryoshka_dims",
        ),
        ((), "At least one of"),
        (("--do_train", "--init_checkpoint=x"), "--train_file must be set with --do_train"),
        (("--do_eval",), "--dev_file must be set with --do_eval"),
        (("--do_eval", "--dev_file=x", "--label_smoothing=0.1"), "--objective=classification"),
        (
            ("--do_train", "--init_checkpoint=x", "--train_file=x", "--keep_best=val_spearman"),
            "must have a dev file to score",
        ),
    ):
        result = run("run_sentence_encoder", f"--output_dir={tmp_path}", *flags)
        assert result.returncode == 1 and message in result.stderr


def test_distills_static_embeddings_and_trains_them(tiny_config, tiny_vocabulary, tmp_path):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    BertBackbone(tiny_config).save_pretrained(checkpoint)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(checkpoint)
    pairs = [json.dumps({"anchor": a, "positive": b}) for a, b in zip(FIRSTS, SECONDS)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs))
    (tmp_path / "words.txt").write_text("films\ngood\n")
    command = (
        "run_sentence_encoder",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={output}",
        "--do_distill_static",
        "--pca_dims=8",
        "--sif_coefficient=0",
        f"--vocabulary_file={tmp_path}/words.txt",
        "--max_seq_length=16",
        "--normalize=false",
    )
    result = run(*command)
    assert result.returncode == 0, result.stderr
    static = BertSentenceEncoder.from_pretrained(output / "model")
    assert static.tokenizer.vocabulary == [*tiny_vocabulary, "films"]
    assert (static.max_length, static.normalize) == (16, False)
    flags = ("--do_train", "--learning_rate=0.1", "--num_train_epochs=5")
    result = run(*command, f"--train_file={tmp_path}/pairs.jsonl", *flags)
    assert result.returncode == 0, result.stderr
    trained = BertSentenceEncoder.from_pretrained(output / "model")
    assert trained.encode("good films").shape == (8,)
    assert np.abs(trained.encode(FIRSTS) - static.encode(FIRSTS)).max() > 1e-2
