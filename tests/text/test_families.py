"""The tokenizers of newer encoders, compared with Hugging Face's `tokenizers`."""

import random

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.text import BertTokenizer, SubwordTokenizer, load_tokenizer
from bert_tf.text.unicode_tables import unicode_data
from bert_tf.text.unigram import Normalized, steps
from tests.text import fuzz
from tests.text.subwords import added, assert_same, bpe_definition, hugging_face, unigram_definition

MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello"), ("Ġ", "Ġ")]
MERGES += [("Ã", "©"), ("Ċ", "Ċ"), ("1", "2"), ("'", "s"), ("ĉ", "he")]
PIECES = [("▁", -2.0), ("▁hello", -3.0), ("hello", -5.0), ("中", -4.0), ("'", -4.0), ("é", -1.0)]
INSERTED = ["<mask>", " <mask> ", "<s>", "|||IP|||", "e\u0301", "E\u0323\u0302", "\u212b"]
INSERTED += ["\u1100\u1161\u11a8", "\u0958", "  ", " " * 5, "\n", " \n ", "\r\n\r\n", "\t\thello"]
INSERTED += ["!\n\n x", "\u2028", "\u3000\u3000x", "'S", "'LL", "'ſ", "12345", " 12", "\xa0"]
INSERTED += ["hello", " hello", "unreachable"]


def template(vocab, *pair):
    """Post-processing as `tokenizers` writes it; `pair` are the tokens of two texts, A and B."""

    def item(token, second):
        kind = "Sequence" if token in "AB" else "SpecialToken"
        return {kind: {"id": token, "type_id": second}}

    place = pair.index("</s>") + 1
    described = {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in ("<s>", "</s>")}
    return {
        "type": "TemplateProcessing",
        "single": [item(token, 0) for token in pair[:place]],
        "pair": [item(token, int(index >= place)) for index, token in enumerate(pair)],
        "special_tokens": described,
    }


def modernbert():
    """NFC, runs of spaces as added tokens, others that are not special."""
    definition = bpe_definition(MERGES)
    vocab = definition["model"]["vocab"]
    vocab["|||IP|||"] = len(vocab)
    for number, token in enumerate(["|||IP|||", "    ", "  ", "[unused0]"]):
        ids = {token: len(vocab) - 1 + number}
        definition["added_tokens"].append(added(ids, token, normalized=True) | {"special": False})
    definition["normalizer"] = {"type": "NFC"}
    definition["post_processor"] = template(vocab, "<s>", "A", "</s>", "B", "</s>")
    return definition


def eurobert():
    """Llama 3's pattern, pieces that no merge makes, its first token before both texts."""
    definition = bpe_definition(MERGES)
    model = definition["model"] | {"ignore_merges": True}
    for piece in ("unreachable", "Ġ12", "ll'", "ĠĠĠĠ"):
        model["vocab"].setdefault(piece, len(model["vocab"]))
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    first = [split | {"invert": False}, level | {"use_regex": False}]
    last = template(model["vocab"], "<s>", "A", "</s>", "<s>", "B", "</s>")
    level = level | {"trim_offsets": False, "use_regex": True}
    return definition | {
        "model": model,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": first},
        "post_processor": {"type": "Sequence", "processors": [level, last]},
    }


def deberta_v2():
    """What transformers 5 writes."""
    runs = {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    normalizer = {"type": "Sequence", "normalizers": [runs, {"type": "NFC"}, strip]}
    return unigram_definition(PIECES, normalizer=normalizer)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("family", [modernbert, eurobert, deberta_v2])
def test_ids_spans_and_pairs(family, tmp_path):
    definition = family()
    expected, tokenizer = hugging_face(definition), SubwordTokenizer(definition)
    (texts,) = fuzz.batches(700, INSERTED)
    encodings = expected.encode_batch(texts, add_special_tokens=False)
    pieces = tokenizer.tokenize_with_offsets(texts)
    assert_same(texts, pieces.ids.to_list(), [encoding.ids for encoding in encodings])
    spans = [[*zip(*r)] for r in zip(pieces.char_starts.to_list(), pieces.char_ends.to_list())]
    assert_same(texts, spans, [encoding.offsets for encoding in encodings])
    tokenizer.save_pretrained(tmp_path)
    saved = hugging_face(load_tokenizer(tmp_path).definition)
    encodings = saved.encode_batch([*zip(texts[:50], texts[50:])])
    rows = tokenizer(texts[:50], texts[50:100], ragged=True)
    assert rows["token_ids"].to_list() == [encoding.ids for encoding in encodings]
    assert rows["segment_ids"].to_list() == [encoding.type_ids for encoding in encodings]


def test_in_a_graph():
    definition = eurobert() | {"normalizer": {"type": "NFC"}}
    texts = [" e\u0301 hello unreachable", "", "x <mask>\n\n 12345"]
    batches = tf.data.Dataset.from_tensors(texts).map(SubwordTokenizer(definition).tokenize)
    encodings = hugging_face(definition).encode_batch(texts, add_special_tokens=False)
    assert next(iter(batches)).to_list() == [encoding.ids for encoding in encodings]


@pytest.mark.usefixtures("eagerly")
def test_composition():
    """Decompositions, also with other marks between, and marks in any order."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    generator = random.Random(0)
    data = unicode_data()
    marks = [chr(code) for code, value in enumerate(data.properties["combining"]) if value]
    texts = []
    for char, (first, *others) in data.mappings["nfd"].items():
        others += generator.sample(marks, 2)
        generator.shuffle(others)
        texts += [char, char + generator.choice(marks), first + "".join(others)]
    received = Normalized(steps({"type": "NFC"}))(texts)
    expected = map(tokenizers.normalizers.NFC().normalize_str, texts)
    assert_same(texts, received, [*expected])


def test_rounded_numbers_of_word_embeddings():
    """GTE and NomicBERT have 30,528 for the 30,522 pieces of bert-base-uncased."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizer([*special, *map(str, range(30_517))])
    tokenizer.require_size_of(30_528)
    with pytest.raises(UserError, match="as many entries"):
        tokenizer.require_size_of(30_529)
