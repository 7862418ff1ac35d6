"""Words of scripts without spaces, with the Unigram vocabulary of XLM-R's form."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertTokenClassifier
from bert_tf.inputs.columns import flat_strings
from bert_tf.inputs.labels import IGNORED
from bert_tf.tasks.token_classification.word_windows import WordWindows, split_texts
from bert_tf.text import SubwordTokenizer
from tests.text.subwords import hugging_face, unigram_definition

PIECES = [("▁good", -3.0), ("▁film", -3.5), ("中国", -4.0), ("▁日本", -4.0), ("▁", -2.0)]
PIECES += [(char, -9.0) for char in "中国人在日本看godдlfimกขか。，,"]
DEFINITION = unigram_definition(PIECES)
# Latin and Cyrillic words keep their space, also if it is a piece of its own.
SENTENCES = [
    ["中", "国", "人", "看", "good", "film", "。"],
    ["中国人", "дom", "日本", "กข", "か", "，", "𪚥", "", "▁中", " 中", "中 国"],
    ["good", "oil", "film", ","],
]
LABELS = ["O", "B-X", "I-X"]
TEXT = "中国人 看good film，在日本。"


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer(DEFINITION)


@pytest.fixture(scope="module")
def make(tokenizer):
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        type_vocab_size=1,
        pad_token_id=1,
        model_type="roberta",
        position_offset=2,
    )

    def make(spread=0.9, **options):  # a spread of the random weights with which answers differ
        keras.utils.set_random_seed(4)
        options = {"labels": LABELS, "tokenizer": tokenizer, "max_length": 20, **options}
        new = dataclasses.replace(config, initializer_range=spread)
        return BertTokenClassifier(BertBackbone(new), **options)

    return make


def rows(windows, tokenizer):
    """The pieces of each window, with the label of each, the number of its word or None."""
    labels = windows.labels(np.arange(windows.item_splits[-1])).to_list()
    ids = windows.ragged(windows.token_ids).to_list()
    return [
        [
            (tokenizer.vocabulary[token], None if label == IGNORED else label)
            for token, label in zip(row, of_row)
        ]
        for row, of_row in zip(ids, labels)
    ]


def by_hand(sentences, space_before_all_words):
    """The pieces that `tokenizers` makes of words, without the lone `▁` where text has none."""
    theirs, count, found = hugging_face(DEFINITION), 0, []
    for words in sentences:
        row = [("<s>", None)]
        for word in words:
            pieces = theirs.encode([word], is_pretokenized=True, add_special_tokens=False).tokens
            unspaced = word[:1] in set("中国人日本กか看在，。𪚥") and word
            if pieces[0:1] == ["▁"] and len(pieces) > 1 and unspaced and not space_before_all_words:
                del pieces[0]
            pieces = ["<unk>" if piece == "𪚥" else piece for piece in pieces] or ["<unk>"]
            row += zip(pieces, [count] + [None] * len(pieces))
            count += 1
        found.append([*row, ("</s>", None)])
    return found


@pytest.mark.parametrize("space_before_all_words", [False, True])
def test_pieces_and_labels_of_words(tokenizer, space_before_all_words):
    pytest.importorskip("tokenizers", reason="needs tokenizers")
    windows = WordWindows(
        tokenizer,
        *flat_strings(SENTENCES),
        max_length=60,
        space_before_all_words=space_before_all_words,
    )
    expected = by_hand(SENTENCES, space_before_all_words)
    assert rows(windows, tokenizer) == expected
    pieces = [piece for row in expected for piece, _ in row]
    assert pieces.count("▁") == (17 if space_before_all_words else 6)


def test_words_of_texts():
    words = split_texts("strict", tf.constant([TEXT, "", "Ada's\u00a0 Éa\u0301"]))
    assert [word.decode() for word in words.words.numpy()] == [
        *["中", "国", "人", "看", "good", "film", "，", "在", "日", "本", "。"],
        *["Ada", "'", "s", "Éa\u0301"],
    ]
    assert words.row_splits.numpy().tolist() == [0, 11, 11, 15]
    assert words.starts.numpy().tolist() == [0, 1, 2, 4, 5, 10, 14, 15, 16, 17, 18, 0, 3, 4, 7]
    assert words.ends.numpy().tolist() == [1, 2, 3, 5, 9, 14, 15, 16, 17, 18, 19, 3, 4, 5, 10]
    for errors, found in (("replace", ["a", "b"]), ("strict", None)):
        texts = tf.constant([b"a\xff b"])
        if found is None:
            with pytest.raises(tf.errors.InvalidArgumentError, match="UTF-8"):
                split_texts(errors, texts)
        else:
            assert [w.decode() for w in split_texts(errors, texts).words.numpy()] == found


def of_words(model, texts):
    """What `predict_tags` says of the words that BERT makes of texts: a span for each B and I."""
    words = split_texts("strict", tf.constant(texts))
    splits = words.row_splits.numpy()
    found = [word.decode() for word in words.words.numpy()]
    lists = [found[a:b] for a, b in zip(splits, splits[1:])]
    return lists, model.predict_tags(lists)


@pytest.mark.parametrize("use_crf", [pytest.param(False, marks=pytest.mark.full), True])
def test_texts_are_tagged_as_their_words_are(make, tmp_path, use_crf):
    """From Python, one text and many, and in a SavedModel; in windows of 20 tokens."""
    model = make(labels=["a", "b", "c"], use_crf=use_crf)
    texts = [TEXT, TEXT * 4, "", "good film"]
    lists, tags = of_words(model, texts)
    assert len({tag for row in tags for tag in row}) > 1
    expected = [list(zip(*row)) for row in zip(lists, tags)]
    assert [[(span.text, span.label) for span in row] for row in model.tag(texts)] == expected
    assert [(span.text, span.label) for span in model.tag(texts[1])] == expected[1]
    served = tf.saved_model.load(model.export(tmp_path)).signatures["serving_default"]
    outputs = served(text=tf.constant(texts))
    counts = outputs["entity_count"].numpy()
    pairs = zip(outputs["entity_text"].numpy(), outputs["entity_label"].numpy())
    received = [
        [(text.decode(), label.decode()) for text, label in list(zip(*row))[:count]]
        for row, count in zip(pairs, counts)
    ]
    assert received == expected


def test_hugging_faces_way_splits_texts_at_spaces(make, tmp_path, is_full):
    model = make(labels=["a", "b"], space_before_all_words=True)
    texts = [TEXT, "good film"]
    words = [["中国人", "看good", "film，在日本。"], ["good", "film"]]
    spans = model.tag(texts)
    assert [[span.text for span in row] for row in spans] == words
    assert [[span.label for span in row] for row in spans] == model.predict_tags(words)
    if not is_full:  # the test before this one has the other way in a SavedModel
        return
    served = tf.saved_model.load(model.export(tmp_path)).signatures["serving_default"]
    received = served(text=tf.constant(texts[:1]))["entity_text"].numpy()[0]
    assert [text.decode() for text in received] == words[0]


def test_characters_are_learned(make):
    """Each character has its own tag, which a model that sees a lone `▁` for each cannot learn."""
    generator = np.random.default_rng(1)
    tag_of = dict(zip("中国人在日", ["B-X", "I-X", "O", "B-X", "O"]))
    sentences = [list(generator.choice(list(tag_of), 8)) for _ in range(64)]
    tags = [[tag_of[word] for word in row] for row in sentences]
    model = make(spread=0.1)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(sentences, tags, batch_size=16, epochs=8, verbose=0)
    assert model.predict_tags(sentences[:8]) == tags[:8]


@pytest.mark.full
def test_words_without_spaces_are_stored(make, tmp_path):
    """tests/conformance stores the other value, which is also that of files without the option."""
    model = make(space_before_all_words=False)
    expected = model.predict_tags(SENTENCES)
    model.save_pretrained(tmp_path / "huggingface")
    model.save_pretrained(tmp_path / "own", format="bert_tf")
    model.save(tmp_path / "model.keras")
    for name in ("huggingface", "own", "model.keras"):
        opened = BertTokenClassifier.from_pretrained(tmp_path / name)
        assert opened.space_before_all_words is False, name
        assert opened.predict_tags(SENTENCES) == expected
        opened = BertTokenClassifier.from_pretrained(tmp_path / name, space_before_all_words=True)
        assert opened.space_before_all_words is True


def test_a_model_trained_before_keeps_its_way(make, tmp_path):
    """Files without the option: of Hugging Face, and of an earlier version of this package."""
    model = make()
    config = model.get_config()
    del config["space_before_all_words"]
    assert BertTokenClassifier.from_config(config).space_before_all_words is True
    for format in ("huggingface", "bert_tf"):
        directory = tmp_path / format
        model.save_pretrained(directory, format=format)
        edited = 0
        for path in directory.glob("*.json"):
            content = json.loads(path.read_text())
            if isinstance(content, dict):
                edited += without_option(content)
                path.write_text(json.dumps(content))
        assert edited == 1
        assert BertTokenClassifier.from_pretrained(directory).space_before_all_words is True
    model.backbone.save_pretrained(tmp_path / "encoder")
    model.tokenizer.save_pretrained(tmp_path / "encoder")
    new = BertTokenClassifier.from_pretrained(tmp_path / "encoder", labels=LABELS)
    assert new.space_before_all_words is False  # its head is not trained yet


def without_option(content):
    """Removes the option from JSON, at any depth, and returns how often it was there."""
    found = content.pop("space_before_all_words", None) is not None
    return found + sum(without_option(v) for v in content.values() if isinstance(v, dict))
