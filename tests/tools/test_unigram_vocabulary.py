"""A Unigram vocabulary from text to a pre-trained model, as a user makes it."""

import json
import random

import pytest
import tensorflow as tf

import bert_tf
from bert_tf.tasks.pretraining.records import feature_spec
from tests.tools.running import run

WORDS = ["good", "film", "slowly", "lower", "ｏｎｅ", "café", "今天很好", "天气"]


def succeed(*command):
    result = run(*command)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("sentencepiece", reason="needs sentencepiece")
    directory = tmp_path_factory.mktemp("unigram")
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(120)]
    text = "\n".join(line + "\n" * (number % 6 == 5) for number, line in enumerate(lines))
    (directory / "text.txt").write_text(text, encoding="utf-8")
    shown = succeed(
        "build_vocab",
        "--algorithm=unigram",
        f"--input_file={directory}/text.txt",
        "--vocab_size=60",
        f"--output_file={directory}/tokenizer.json",
    )
    assert f"--vocab_file={directory}/tokenizer.json" in shown and "do_lower_case" not in shown
    return directory


@pytest.mark.full
def test_from_text_to_a_model(corpus):
    tokenizer = bert_tf.text.load_tokenizer(corpus)
    assert tokenizer.vocab_size <= 60 and "▁cafe" in tokenizer.vocabulary
    files = (f"--input_file={corpus}/text.txt", f"--vocab_file={corpus}/tokenizer.json")
    data = corpus / "data.tfrecord"
    succeed(
        "create_pretraining_data",
        *files,
        f"--output_file={data}",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
        "--dupe_factor=1",
        "--num_processes=1",
    )
    spec = feature_spec(24, 4)
    rows = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(str(data))]
    for row in rows[:20]:
        ids, mask = row["input_ids"].numpy(), row["input_mask"].numpy()
        assert ids[0] == tokenizer.cls_token_id and not ids[mask == 0].any()
        assert (ids == tokenizer.sep_token_id).sum() == 2
        assert row["segment_ids"].numpy().max() == 1
    masked = sum((row["input_ids"].numpy() == tokenizer.mask_token_id).sum() for row in rows)
    assert masked > 0
    config = bert_tf.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
    )
    (corpus / "config.json").write_text(json.dumps(config.to_dict()))
    trained = (
        f"--bert_config_file={corpus}/config.json",
        "--do_train",
        "--train_batch_size=4",
        "--num_train_steps=2",
        "--num_warmup_steps=1",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
    )
    vocabulary = files[1]
    for name, inputs in (("text", files), ("records", (f"--input_file={data}", vocabulary))):
        succeed("run_pretraining", *inputs, *trained, f"--output_dir={corpus}/{name}")
        model = bert_tf.BertMaskedLM.from_pretrained(corpus / name / "model")
        assert model.tokenizer.vocabulary == tokenizer.vocabulary
        assert len(model.fill_mask("good [MASK]")) > 0
    shown = succeed("tokenize_text", vocabulary, "--text=Café film", "--json")
    assert json.loads(shown)["pieces"] == ["▁cafe", "▁film"]


@pytest.mark.parametrize(
    "program,flags,message",
    [
        ("build_vocab", ("--output_file=v.txt",), "--output_file must end in .json"),
        (
            "build_vocab",
            ("--output_file=v.json", "--min_frequency=3"),
            "--min_frequency must be left out with --algorithm=unigram",
        ),
        (
            "build_vocab",
            ("--output_file=v.json", "--algorithm=bpe", "--character_coverage=0.9"),
            "--character_coverage must be left out",
        ),
        ("build_vocab", ("--output_file=v.json", "--vocab_size=12"), "enough for a vocabulary of"),
        ("beam_build_vocab", ("--output_file=v.json",), "--algorithm must be wordpiece or bpe"),
        (
            "create_pretraining_data",
            ("--output_file=d", "--vocab_file=tokenizer.json", "--do_lower_case=false"),
            "--do_lower_case must be left out with byte pairs or a Unigram model",
        ),
    ],
)
def test_mistakes_are_refused(corpus, program, flags, message):
    own = () if program == "create_pretraining_data" else ("--algorithm=unigram",)
    result = run(program, "--input_file=text.txt", *own, *flags, directory=corpus)
    assert result.returncode == 1
    assert message in result.stderr and "Traceback" not in result.stderr
    assert not (corpus / "v.json").exists() and not (corpus / "v.txt").exists()
