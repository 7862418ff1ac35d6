"""The ids of Hugging Face's `tokenizers`, id for id, and of plain Python."""

import bz2
import io
import json
import random

import pytest

from bert_tf.text import SubwordTokenizer, byte_characters, load_tokenizer
from tests.text import fuzz
from tests.text.subwords import (
    assert_same,
    bpe_definition,
    gemma_definition,
    hugging_face,
    merged,
    most_probable,
    unigram_definition,
)

FEW, MANY = 1_000, 200_000  # strings
INSERTED = ["<s>", "</s>", "<mask>", "<pad>", "<unk>", " <mask> ", "[MASK]", "  ", "\n", "''", "``"]
INSERTED += [
    "'s",
    "'ll ",
    " 're",
    "▁",
    "ﬁ\u0301",
    "\u0600e\u0301",
    "\r\n",
    "\ufeff\u0344",
    "9,",
    "ＡＢ",
    "<bos>",
    "<0x41>",
    "▁▁",
    "\n\n\n",
]


@pytest.fixture(scope="module")
def texts(materials):
    """Real texts in English, Chinese and both."""
    english = bz2.open(materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2", "rt")
    english = english.read().split("\n")[:500]
    chinese = (materials / "chinese_text" / "pos.txt").read_text(encoding="utf-8").split("\n")[:300]
    return english + chinese + [a[:60] + b[:30] for a, b in zip(english, chinese)]


def roberta(texts, directory):
    """RoBERTa's files, and the tokenizer that transformers makes of them."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    pre, processors = tokenizers.pre_tokenizers, tokenizers.processors
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=3000,
        show_progress=False,
        initial_alphabet=pre.ByteLevel.alphabet(),
        special_tokens=special,
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.model.save(str(directory))
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    add_special(tokenizer, special)
    return tokenizer


def add_special(tokenizer, special):
    from tokenizers import AddedToken

    for token in special:
        mask = token in ("<mask>", "[MASK]")
        tokenizer.add_special_tokens([AddedToken(token, lstrip=mask, normalized=False)])


def trained(texts, **options):
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text[:500] for text in texts),
        model_writer=model,
        vocab_size=4000,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return model.getvalue()


def unigram(vocab, unk_id, normalizers, splits, template, special):
    """The tokenizer that transformers makes of a sentencepiece model."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id, False))
    tokenizer.normalizer = tokenizers.normalizers.Sequence(normalizers)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    if splits:
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
        )
    add_special(tokenizer, special)
    cls, sep = template[0].split()[0], template[0].split()[-1]
    ids = {token.split(":")[0]: tokenizer.token_to_id(token.split(":")[0]) for token in (cls, sep)}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=template[0], pair=template[1], special_tokens=list(ids.items())
    )
    return tokenizer


def xlm_roberta(texts, directory, splits=False):
    from bert_tf.text.sentencepiece_model import read_model

    content = trained(texts)
    normalizers = pytest.importorskip("tokenizers", reason="needs tokenizers").normalizers
    import tokenizers

    (directory / "trained").write_bytes(content)
    model = read_model(directory / "trained")
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [*model["pieces"][3:], ("<mask>", 0.0)]
    steps = [normalizers.Precompiled(model["charsmap"])]
    if not splits:  # the second form is that of older tokenizer.json
        steps += [normalizers.Strip(left=False, right=True)]
        steps += [normalizers.Replace(tokenizers.Regex(" {2,}"), "▁")]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    template = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    tokenizer = unigram(vocab, 3, steps, splits, template, special)
    if splits:
        tokenizer.save(str(directory / "tokenizer.json"))
    else:
        (directory / "sentencepiece.bpe.model").write_bytes(content)
    return tokenizer


def albert(texts, directory):
    from bert_tf.text.sentencepiece_model import read_model

    ids = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    content = trained(texts, control_symbols="[CLS],[SEP],[MASK]", **ids)
    normalizers = pytest.importorskip("tokenizers", reason="needs tokenizers").normalizers
    import tokenizers

    (directory / "spiece.model").write_bytes(content)
    model = read_model(directory / "spiece.model")
    vocab = [
        (
            piece,
            score - 100 if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() else score,
        )
        for piece, score in model["pieces"]
    ]
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
    steps += [normalizers.StripAccents(), normalizers.Lowercase()]
    steps += [normalizers.Precompiled(model["charsmap"])]
    steps += [normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    template = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    return unigram(vocab, 1, steps, False, template, special)


def gemma(texts, directory):
    """All merges that give a piece, as transformers derives them: some come before their parts'."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("▁", "merged_with_next")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=4000, show_progress=False, limit_alphabet=2000
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    cuts = [(p, p[:i], p[i:]) for p in sorted(ids, key=ids.get) for i in range(1, len(p))]
    merges = [(left, right) for _, left, right in cuts if left in ids and right in ids]
    characters = [piece for piece in ids if len(piece) == 1]
    runs = [*("\n" * number for number in range(1, 5)), *("▁" * number for number in (2, 3))]
    definition = gemma_definition(merges, characters, runs)
    (directory / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    return hugging_face(definition)


def old_xlm_roberta(texts, directory):
    return xlm_roberta(texts, directory, splits=True)


FAMILIES = [
    roberta,
    xlm_roberta,
    albert,
    gemma,
    pytest.param(old_xlm_roberta, marks=pytest.mark.full),
]


@pytest.fixture(scope="module", params=FAMILIES)
def both(request, texts, tmp_path_factory):
    """Our tokenizer and Hugging Face's."""
    directory = tmp_path_factory.mktemp(request.param.__name__)
    expected = request.param(texts, directory)
    return load_tokenizer(directory), expected


def test_ids_of_fuzzed_strings(both, is_full):
    tokenizer, expected = both
    for texts in fuzz.batches(MANY if is_full else FEW, INSERTED):
        encodings = expected.encode_batch(texts, add_special_tokens=False)
        pieces = tokenizer.tokenize_with_offsets(texts)
        assert_same(texts, pieces.ids.to_list(), [encoding.ids for encoding in encodings])
        ends = [field.to_list() for field in pieces[1:]]
        for row, text in enumerate(texts[:500]):
            encoded = text.encode()
            for first_byte, last_byte, first, last in zip(*(field[row] for field in ends)):
                assert encoded[first_byte:last_byte].decode() == text[first:last]


def test_ids_and_offsets_of_real_texts(both, texts, is_full):
    tokenizer, expected = both
    encodings = expected.encode_batch(texts, add_special_tokens=False)
    pieces = tokenizer.tokenize_with_offsets(texts)
    assert_same(texts, pieces.ids.to_list(), [encoding.ids for encoding in encodings])
    spans = zip(pieces.char_starts.to_list(), pieces.char_ends.to_list())
    spans = [list(zip(*row)) for row in spans]
    assert_same(texts, spans, [encoding.offsets for encoding in encodings])


def test_pairs_and_saved_files(both, tmp_path, is_full):
    tokenizer, expected = both
    first, second = ["Hello <mask>.", "", "<s>好 'tis"], ["", "a  b", "it's 9,"]
    rows = tokenizer(first, second, ragged=True)
    encodings = expected.encode_batch(list(zip(first, second)))
    assert_same(first, rows["token_ids"].to_list(), [encoding.ids for encoding in encodings])
    assert_same(first, rows["segment_ids"].to_list(), [encoding.type_ids for encoding in encodings])
    tokenizer.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    again = hugging_face(content).encode_batch(list(zip(first, second)))
    assert [encoding.ids for encoding in again] == [encoding.ids for encoding in encodings]
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_config() == tokenizer.get_config()
    texts = ["Hello.", "好 'tis  so", ""]
    decoded = [expected.decode(expected.encode(text).ids).encode() for text in texts]
    assert tokenizer.detokenize(tokenizer(texts)["token_ids"]).numpy().tolist() == decoded


def pieces_of(tokenizer, texts):
    ids = tokenizer.tokenize_with_offsets(texts).ids.to_list()
    return [[tokenizer.vocabulary[token] for token in row] for row in ids]


def random_words(generator, number):
    lengths = (generator.choice([1, 2, 5, 20, 60]) for _ in range(number))
    return ["".join(generator.choice("aab") for _ in range(length)) for length in lengths]


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 40))]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("seed", SEEDS)
def test_byte_pairs_of_random_merges(seed):
    """Merges that need what a later one makes, too: then some pairs of a rank have to wait."""
    generator = random.Random(seed)
    pieces, merges = ["a", "b"], []
    while len(merges) < 25:
        left, right = generator.choice(pieces), generator.choice(pieces)
        if left + right not in pieces and len(left + right) < 12:
            merges.append((left, right))
            pieces.append(left + right)
    if seed % 2:
        generator.shuffle(merges)
    tokenizer = SubwordTokenizer(bpe_definition(merges))
    words = random_words(generator, 150)
    expected = [merged(word, merges) for word in words]
    assert_same(words, pieces_of(tokenizer, words), expected)
    assert tokenizer._graphs.model.model.model._merges._in_rounds == (seed % 2 == 0)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("seed", SEEDS)
def test_character_pairs_of_random_merges(seed):
    """Merges of characters and of bytes, in any order."""
    generator = random.Random(seed)
    pieces, merges = ["a", "b", "▁"], []
    pieces += ["<0xC3>", "<0xA9>", "<0x80>"] * (seed % 3 > 0)
    while len(merges) < 40:
        left, right = generator.choice(pieces), generator.choice(pieces)
        if left + right not in pieces and len(left + right) < 18:
            merges.append((left, right))
            pieces.append(left + right)
    if seed % 2:
        generator.shuffle(merges)
    definition = gemma_definition(merges, "ab")
    if seed % 4 < 2:
        definition["normalizer"] = None  # spaces are bytes, after which the text is split
    words = random_words(generator, 150)
    words += ["".join(generator.choice("aabé\u0080 c") for _ in word) for word in words]
    encodings = hugging_face(definition).encode_batch(words, add_special_tokens=False)
    pieces = SubwordTokenizer(definition).tokenize_with_offsets(words)
    assert_same(words, pieces.ids.to_list(), [encoding.ids for encoding in encodings])
    spans = zip(pieces.char_starts.to_list(), pieces.char_ends.to_list())
    spans = [list(zip(*row)) for row in spans]
    assert_same(words, spans, [encoding.offsets for encoding in encodings])


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_of_random_unigram_models(seed):
    """Many ways are equally good or nearly so; sums that are rounded are the same, too."""
    generator = random.Random(seed)
    exact, split = seed % 2 == 0, seed % 4 < 2
    pieces = {"▁": -1.0, "a": -0.5}
    for word in random_words(generator, 60):
        score = generator.choice([1.0, 2.0, 3.5]) if exact else generator.random() / 3
        pieces.setdefault(word[:5], -score)
    tokenizer = SubwordTokenizer(unigram_definition(pieces.items(), split))
    words = random_words(generator, 60)
    words[-1] = "".join(words)[:300]
    texts = [f"{a}{space}{b}" for a, b, space in zip(words, words[1:], [" ", "\n", "\u3000"] * 20)]
    scores = dict(tokenizer.definition["model"]["vocab"])

    def expected(text):
        parts = text.split() if split else text.split(" ")
        pieces = (piece for part in parts for piece in most_probable("▁" + part, scores))
        return [piece or "<unk>" for piece in pieces]

    assert_same(texts, pieces_of(tokenizer, texts), list(map(expected, texts)))
    assert tokenizer._graphs.model.model._exact == exact


def test_byte_characters():
    assert len(set(byte_characters())) == 256
    assert byte_characters()[ord("a")] == "a" and byte_characters()[ord(" ")] == "Ġ"
