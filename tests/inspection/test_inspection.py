"""The numbers of an inspection, compared with their definitions computed another way."""

import dataclasses
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertMaskedLM,
    BertPretrainer,
    BertSentenceEncoder,
    BertSparseEncoder,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
    inspection,
)
from bert_tf.errors import UserError
from bert_tf.inspection.attributions import (
    attention_rollout,
    gradient_times_input,
    integrated_gradients,
    without_heads,
)
from bert_tf.inspection.targets import InspectedRow, Target
from bert_tf.text import SubwordTokenizer
from tests.conformance.task import make as make_task
from tests.conformance.tasks import TASKS, tasks
from tests.inspection.models import make
from tests.text.subwords import bpe_definition

TEXT = "the good film abc ."


@pytest.fixture(scope="module")
def classifier(tiny_config, tiny_vocabulary):
    return make(BertTextClassifier, tiny_config, tiny_vocabulary, labels=["bad", "good", "fair"])


@pytest.fixture(scope="module")
def masked_lm(tiny_config, tiny_vocabulary):
    return make(BertMaskedLM, tiny_config, tiny_vocabulary)


@pytest.fixture(scope="module")
def found(classifier):
    return inspection.inspect_text(classifier, TEXT, target="good")


def test_pieces_have_their_places_and_words(found):
    row = found.row
    assert row.pieces == ["[CLS]", "the", "good", "film", "a", "##b", "##c", ".", "[SEP]"]
    assert row.words.tolist() == [-1, 0, 1, 2, 3, 3, 3, 4, -1]
    assert row.text_numbers.tolist() == [-1, 0, 0, 0, 0, 0, 0, 0, -1]
    slices = [TEXT[start:end] for start, end in zip(row.starts, row.ends)]
    assert slices == ["", "the", "good", "film", "a", "b", "c", ".", ""]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_pair_is_cut_as_the_tokenizer_cuts_it(tiny_vocabulary, side):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False, truncation_side=side)
    texts = ("good film abc", "bad film . the abcdef")
    row = InspectedRow(tokenizer, texts, max_length=11)
    expected = tokenizer(*([text] for text in texts), max_length=11)
    assert row.num_cut == 15 - 8
    for name, values in expected.items():
        assert row.tokens[name].numpy().tolist() == values.numpy().tolist()
    for piece, number, start, end in zip(row.pieces, row.text_numbers, row.starts, row.ends):
        assert texts[number][start:end] == piece.removeprefix("##") or number == -1


def test_a_word_does_not_go_on_after_a_gap(tiny_vocabulary):
    """Of 8 pieces, the first and the last 3 are kept, and the second is `##c` of `abc`."""
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False, truncation_side="middle")
    row = InspectedRow(tokenizer, ("good film bad abc the .",), max_length=6)
    assert row.pieces == ["[CLS]", "good", "##c", "the", ".", "[SEP]"]
    assert row.words.tolist() == [-1, 0, 1, 2, 3, -1]


def test_attention_rows_sum_to_one(found, classifier):
    assert found.attentions.shape == (2, 4, 9, 9)
    np.testing.assert_allclose(found.attentions.sum(axis=-1), 1, rtol=1e-5)
    outputs = classifier.backbone(classifier.tokenize([TEXT]), output_attentions=True)
    np.testing.assert_allclose(found.attentions[1], outputs["attentions"][1][0], rtol=1e-6)


def test_rollout_is_the_product_of_the_layers(found):
    rolled = np.eye(9)
    for heads in found.attentions.astype(np.float64):
        mixed = np.zeros([9, 9])
        for i in range(9):
            for j in range(9):
                mixed[i, j] = 0.5 * (i == j) + 0.5 * np.mean([head[i, j] for head in heads])
        rolled = (mixed / mixed.sum(axis=1, keepdims=True)) @ rolled
    np.testing.assert_allclose(found.rollout[-1], rolled, rtol=1e-5)
    np.testing.assert_allclose(found.rollout.sum(axis=-1), 1, rtol=1e-6)


def test_gradients_are_those_of_finite_differences(classifier):
    row = InspectedRow(classifier.tokenizer, (TEXT,), 40)
    target = Target(classifier, row, label="good")
    values = gradient_times_input(classifier, row, target).pieces
    vectors = tf.gather(classifier.backbone.embeddings.word_embeddings, row.ids)  # [T, H]
    step = 1e-2
    for place in (2, 5):
        change = step * tf.one_hot(place, len(row))[:, tf.newaxis] * vectors  # [T, H]
        both = tf.stack([vectors + change, vectors - change])
        more, less = target.score(row.copies(2, word_vectors=both)).numpy()
        assert values[place] == pytest.approx((more - less) / (2 * step), rel=0.01, abs=1e-3)


def test_integrated_gradients_are_complete(classifier):
    row = InspectedRow(classifier.tokenizer, (TEXT,), 40)
    target = Target(classifier, row, label="good")
    hidden = "[CLS]" + " [MASK]" * 7 + " [SEP]"
    ids = tf.constant([[classifier.tokenizer.token_to_id(piece) for piece in hidden.split()]])
    baseline = float(classifier({**row.tokens, "token_ids": ids})[0, 1])
    gaps = []
    for steps in (2, 16, 128):
        result = integrated_gradients(classifier, row, target, steps)
        assert result.baseline == pytest.approx(baseline, abs=1e-5)
        score = float(classifier(row.tokens)[0, 1])
        gap = score - baseline - result.pieces.sum()
        assert result.gap == pytest.approx(gap, abs=1e-5)
        assert result.words.sum() == pytest.approx(result.pieces.sum())
        gaps.append(abs(gap))
    assert gaps[2] < 1e-5 < 1e-4 < gaps[0]
    assert gaps[1] < gaps[0]


def test_occlusion_hides_pieces_and_words(found, classifier):
    row, occlusion = found.row, found.attributions["occlusion"]
    mask, ids = classifier.tokenizer.mask_token_id, row.ids
    score = float(classifier(row.tokens)[0, 1])

    def fall(hidden):
        changed = np.array([[mask if place in hidden else n for place, n in enumerate(ids)]])
        return score - float(classifier({**row.tokens, "token_ids": tf.constant(changed)})[0, 1])

    assert occlusion.pieces[5] == pytest.approx(fall([5]), abs=1e-5)
    assert occlusion.words[3] == pytest.approx(fall([4, 5, 6]), abs=1e-5)
    assert occlusion.pieces[[0, 8]].tolist() == [0, 0]


def test_a_head_that_is_off_gives_nothing(found, tiny_config, tiny_vocabulary, classifier):
    layer, head, size = 1, 2, tiny_config.head_size
    labels = ["bad", "good", "fair"]
    other = make(BertTextClassifier, tiny_config, tiny_vocabulary, labels=labels)
    dense = other.backbone.encoder.blocks[layer].attention_output
    kernel = dense.kernel.numpy()  # [N D, H]
    kernel[head * size : (head + 1) * size] = 0
    dense.kernel.assign(kernel)
    expected = other.predict([TEXT], verbose=0)[0]
    by_label = {answer.label: place for place, answer in enumerate(found.target.answers)}
    scores = found.head_scores[layer, head]
    np.testing.assert_allclose([scores[by_label[name]] for name in labels], expected, rtol=1e-4)
    np.testing.assert_allclose(found.head_probabilities.sum(axis=-1), 1, rtol=1e-6)
    (single,) = [
        answer.score
        for answer in without_heads(classifier, found.row, found.target, [(layer, head)])
        if answer.label == "good"
    ]
    assert single == pytest.approx(expected[1], rel=1e-4)
    with pytest.raises(UserError, match="a layer in"):
        without_heads(classifier, found.row, found.target, [(2, 0)])


def test_pruned_heads_are_left_out(tiny_config, tiny_vocabulary):
    model = make(BertTextClassifier, tiny_config, tiny_vocabulary)
    model.prune_heads({0: [1, 3]})
    found = inspection.inspect_text(model, TEXT)
    assert found.kept_heads == [[0, 2], [0, 1, 2, 3]]
    assert found.attentions[0, [1, 3]].sum() == 0
    np.testing.assert_allclose(found.attentions[0, [0, 2]].sum(axis=-1), 1, rtol=1e-5)
    assert np.isnan(found.head_scores[0, [1, 3]]).all()
    assert not np.isnan(found.head_scores[1]).any()
    np.testing.assert_allclose(found.rollout.sum(axis=-1), 1, rtol=1e-6)


def test_pruned_heads_of_shared_blocks_are_left_out_of_all_layers(tiny_config, tiny_vocabulary):
    config = dataclasses.replace(tiny_config, shared_blocks=True, pruned_heads={0: [1]})
    found = inspection.inspect_text(make(BertTextClassifier, config, tiny_vocabulary), TEXT)
    assert found.kept_heads == [[0, 2, 3]] * 2
    assert np.isnan(found.head_scores[:, 1]).all()
    assert not np.isnan(found.head_scores[:, [0, 2, 3]]).any()


def test_masked_words_are_those_of_fill_mask(masked_lm):
    found = inspection.inspect_text(masked_lm, "the good [MASK] .", top_k=3)
    (expected,) = masked_lm.fill_mask(["the good [MASK] ."], top_k=3)[0]
    assert found.target.piece == 3
    for candidates in (found.masked_words, found.lens):
        place = (3,) if candidates is found.masked_words else (-1, 3)
        names = [found.row.readable[number] for number in candidates.ids[place]]
        assert names == [candidate.piece for candidate in expected]
        np.testing.assert_allclose(
            candidates.probabilities[place], [c.probability for c in expected], rtol=1e-4
        )
    hidden = masked_lm.fill_mask(["the [MASK] [MASK] ."], top_k=1)[0][0][0]
    assert found.row.readable[found.masked_words.ids[2, 0]] == hidden.piece
    (own,) = masked_lm.score(["the good film ."], reduction="none")
    plain = inspection.inspect_text(masked_lm, "the good film .").masked_words
    np.testing.assert_allclose(np.log(plain.own[1:-1]), own, rtol=1e-4)


def test_the_last_layer_of_the_lens_is_the_model(masked_lm):
    found = inspection.inspect_text(masked_lm, TEXT)
    logits = masked_lm(found.row.tokens)[0]  # [T, V]
    best = tf.math.top_k(tf.nn.softmax(logits), 5)
    np.testing.assert_array_equal(found.lens.ids[-1], best.indices)
    np.testing.assert_allclose(found.lens.probabilities[-1], best.values, rtol=1e-5)
    assert found.lens.ids.shape == (3, 9, 5)


def test_neighbours_are_the_nearest_by_cosine(found, classifier):
    outputs = classifier.backbone(found.row.tokens, output_hidden_states=True)
    states = outputs["hidden_states"][1][0].numpy().astype(np.float64)
    table = classifier.backbone.embeddings.word_embeddings.numpy()
    cosines = {}
    for name, others in {"near_tokens": states, "near_pieces": table}.items():
        norms = np.linalg.norm(others, axis=1) * np.linalg.norm(states[2])
        cosines[name] = others @ states[2] / norms
    cosines["near_tokens"][2] = -2
    for name, values in cosines.items():
        near = getattr(found, name)
        np.testing.assert_array_equal(near.numbers[1, 2], np.argsort(-values)[:5])
        np.testing.assert_allclose(near.cosines[1, 2], np.sort(values)[::-1][:5], rtol=1e-4)


def test_similarity_of_two_texts(tiny_config, tiny_vocabulary):
    model = make(BertSentenceEncoder, tiny_config, tiny_vocabulary)
    found = inspection.inspect_text(model, "good film", "the bad film")
    vectors = model.encode(["good film", "the bad film"])
    cosine = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    assert found.target.answers[0].score == pytest.approx(cosine, abs=1e-5)
    assert found.row.pieces == ["[CLS]", "good", "film", "[SEP]"]
    assert abs(found.attributions["integrated gradients"].gap) < 0.01
    alone = inspection.inspect_text(model, "good film")
    assert alone.target.answers[0].score == pytest.approx(1, abs=1e-5)


def test_texts_of_models_with_prompts_are_checked(tiny_config, tiny_vocabulary):
    options = {"prompts": {"query": "the "}, "default_prompt_name": "query"}
    model = make(BertSentenceEncoder, tiny_config, tiny_vocabulary, **options)
    for text, pair, name in ((5, "good", "text"), ("good", 5, "pair"), (5, None, "text")):
        with pytest.raises(UserError, match=f"`{name}` must be a string. Received: {name}=5"):
            inspection.inspect_text(model, text, pair)


def test_a_summarizer_has_no_answers_for_a_row_that_it_never_reads():
    """It reads `[CLS]` before each sentence, and a row has one."""
    found = inspection.inspect_text(make_task(TASKS["extractive summarization"]), "good. bad.")
    assert found.target is None and found.attributions == {}


@pytest.mark.parametrize("name", ["sparse encoding", "late interaction"])
def test_models_without_pairs(name):
    with pytest.raises(UserError, match="`pair` must be None for a Bert.* Received: pair='film'"):
        inspection.inspect_text(make_task(TASKS[name]), "good", "film")


def test_a_tag_at_a_token(tiny_config, tiny_vocabulary):
    model = make(BertTokenClassifier, tiny_config, tiny_vocabulary, labels=["O", "B-X", "I-X"])
    found = inspection.inspect_text(model, TEXT, target="B-X", piece=3)
    logits = model(found.row.tokens)[0].numpy()  # [T, C]
    assert (found.target.piece, found.target.number) == (3, 1)
    scores = {answer.label: answer.score for answer in found.target.answers}
    assert scores["B-X"] == pytest.approx(logits[3, 1], abs=1e-5)
    assert found.target.piece_labels == [model.labels[n] for n in logits.argmax(axis=-1)]


def test_vectors_of_words_replace_their_ids(classifier):
    tokens = classifier.tokenize([TEXT, "bad film"])
    table = classifier.backbone.embeddings.word_embeddings
    vectors = tf.gather(table, tokens["token_ids"])
    other_ids = {**tokens, "token_ids": tf.ones_like(tokens["token_ids"])}
    given = classifier({**other_ids, "word_vectors": vectors})
    np.testing.assert_allclose(given, classifier(tokens), rtol=1e-6)
    doubled = classifier({**tokens, "word_vectors": 2 * vectors})
    assert np.abs(doubled - given).max() > 1e-3


@pytest.mark.parametrize(
    "kind", [BertMaskedLM, pytest.param(BertSparseEncoder, marks=pytest.mark.full)]
)
def test_rows_of_the_table_that_no_piece_has_are_no_candidates(tiny_config, kind):
    tokenizer = SubwordTokenizer(bpe_definition([]))
    size, found, weights = tokenizer.vocab_size, [], []
    for spare in (0, 8):
        config = dataclasses.replace(
            tiny_config, vocab_size=size + spare, type_vocab_size=1, pad_token_id=1
        )
        model = kind(BertBackbone(config), tokenizer=tokenizer)
        model.masked_lm_head.output_bias.assign([0.0] * size + [50.0] * spare)
        if weights:  # the same ones, and rows of the table that are most likely
            for value, old in zip(model.weights, weights, strict=True):
                same = value.shape == old.shape
                value.assign(old if same else tf.concat([old, value[size:]], axis=0))
        weights = [tf.identity(value) for value in model.weights]
        found.append(inspection.inspect_text(model, "good", top_k=size + spare))
    without, spare = found
    assert [a.label for a in spare.target.answers] == [a.label for a in without.target.answers]
    assert spare.near_pieces.numbers.max() < size
    np.testing.assert_allclose(spare.head_scores, without.head_scores, rtol=1e-4, atol=1e-5)
    if kind is BertMaskedLM:
        for part in ("lens", "masked_words"):
            one, other = getattr(spare, part), getattr(without, part)
            np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-4)
            np.testing.assert_allclose(one.own, other.own, rtol=1e-4)
    inspection.to_html(spare)


def test_byte_pairs_are_readable(tiny_config):
    merges = [("Ġ", "f"), ("Ġf", "i"), ("l", "m"), ("g", "o"), ("o", "d"), ("go", "od")]
    tokenizer = SubwordTokenizer(bpe_definition(merges))
    config = dataclasses.replace(
        tiny_config, vocab_size=tokenizer.vocab_size, type_vocab_size=1, pad_token_id=1
    )
    model = BertTextClassifier(BertBackbone(config), labels=["bad", "good"], tokenizer=tokenizer)
    text = "good film é"
    row = inspection.inspect_text(model, text).row
    assert row.pieces[1:4] == ["good", "▁fi", "lm"]
    assert row.words[:4].tolist() == [-1, 0, 1, 1]
    assert [text[row.starts[n] : row.ends[n]] for n in (1, 2, 3)] == ["good", "fi", "lm"]
    assert row.pieces[-3:-1] == ["\\xc3", "\\xa9"]  # the two bytes of é


@tasks("text")
def test_any_task_is_inspected(name):
    """What a task says agrees with its outputs; one without outputs shows the rest."""
    model = make_task(TASKS[name])
    has_pairs = name not in ("sparse encoding", "late interaction")
    texts = ("the good film", "the bad film .")[: 1 + has_pairs]
    found = inspection.inspect_text(model, *texts, max_tokens=5000)
    np.testing.assert_allclose(found.attentions.sum(axis=-1), 1, rtol=1e-5)
    if found.target is None:
        assert found.attributions == {}
        return
    assert set(found.attributions) == {"gradient × input", "integrated gradients", "occlusion"}
    score = found.target.score(found.row.tokens).numpy()[0]
    best = max(found.target.answers, key=lambda answer: answer.score)
    assert best.score == pytest.approx(score, rel=1e-5, abs=1e-5)
    integrated = found.attributions["integrated gradients"]
    total = integrated.pieces.sum() + integrated.gap + integrated.baseline
    assert total == pytest.approx(score, rel=1e-4, abs=1e-4)


def test_a_model_of_two_heads_takes_a_tokenizer(tiny_config, tiny_vocabulary):
    model = make(BertPretrainer, tiny_config, tiny_vocabulary)
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    found = inspection.inspect_text(model, "good [MASK]", tokenizer=tokenizer)
    assert found.lens.ids.shape == (3, 4, 5)
    assert found.masked_words.ids.shape == (4, 5)
    with pytest.raises(UserError, match="`tokenizer` must be given"):
        inspection.inspect_text(model, "good [MASK]")


def test_what_costs_too_much_is_left_out(classifier):
    found = inspection.inspect_text(classifier, TEXT, max_tokens=60)
    assert set(found.left_out) == {"heads", "integrated gradients", "occlusion"}
    assert found.left_out["heads"].startswith("needs 72 tokens")
    assert set(found.attributions) == {"gradient × input"}


def test_a_large_vocabulary_costs_more(masked_lm, monkeypatch):
    found = inspection.inspect_text(masked_lm, TEXT, max_tokens=100)
    assert found.lens is not None and found.near_pieces is not None
    large = dataclasses.replace(masked_lm.backbone.config, vocab_size=30_522)
    monkeypatch.setitem(vars(masked_lm.backbone), "config", large)
    found = inspection.inspect_text(masked_lm, TEXT, max_tokens=100)
    assert found.lens is None and found.near_pieces is None
    assert found.left_out["layer lens"] == found.left_out["near pieces"]
    assert found.left_out["layer lens"].startswith("needs 297 tokens")


def test_attention_that_does_not_fit_into_memory_is_refused(classifier, monkeypatch):
    module = sys.modules["bert_tf.inspection.inspection"]
    monkeypatch.setattr(module, "MAX_WEIGHTS", 2 * 4 * 9**2)
    assert inspection.inspect_text(classifier, TEXT).attentions.size == 2 * 4 * 9**2
    with pytest.raises(UserError, match="`text` must be shorter.* Received: 10 tokens"):
        inspection.inspect_text(classifier, TEXT + " good")


def test_quantized_models_have_no_gradients(tiny_config, tiny_vocabulary):
    model = make(BertTextClassifier, tiny_config, tiny_vocabulary)
    model.quantize("int8")
    found = inspection.inspect_text(model, TEXT)
    assert set(found.attributions) == {"occlusion"}
    assert "quantized" in found.left_out["gradients"]


def test_empty_and_wide_texts(classifier):
    empty = inspection.inspect_text(classifier, "")
    assert empty.row.pieces == ["[CLS]", "[SEP]"]
    assert empty.attributions["occlusion"].words.shape == (0,)
    found = inspection.inspect_text(classifier, "\U0001f600 good \u202egood\u2028good")
    row, texts = found.row, found.row.texts
    slices = [texts[0][start:end] for start, end in zip(row.starts, row.ends)]
    assert slices.count("good") >= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "a \ud800 b"}, "`text` must be .* Received: half of .* U\\+D800, at character 2"),
        ({"text": b"good"}, "`text` must be a string. Received: text=b'good'"),
        ({"text": "good", "pair": 5}, "`pair` must be a string. Received: pair=5"),
        ({"text": "good", "target": "awful"}, "one of the 3 answers: bad, good, fair. Received"),
        ({"text": "good", "target": True}, "Received: target=True"),
        ({"text": "good", "steps": 0}, "`steps` must be a positive integer"),
        ({"text": "good", "top_k": "5"}, "`top_k` must be a positive integer"),
        ({"text": "good", "top_k": True}, "`top_k` must be a positive integer"),
    ],
)
def test_mistakes(classifier, arguments, message):
    with pytest.raises(UserError, match=message):
        inspection.inspect_text(classifier, **arguments)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_damaged_weights_of_a_head(tiny_config, tiny_vocabulary, value):
    model = make(BertTextClassifier, tiny_config, tiny_vocabulary)
    model.classifier.bias.assign([value, 0.0])
    with pytest.raises(UserError, match="must compute finite numbers. .* in the outputs"):
        inspection.inspect_text(model, TEXT)


def test_a_gap_that_is_no_number(found):
    given = found.attributions["integrated gradients"]
    damaged = {"integrated gradients": dataclasses.replace(given, gap=np.nan)}
    page = inspection.to_html(dataclasses.replace(found, attributions=damaged))
    assert '"gap":null' in page.html


def test_a_backbone_is_no_task_model(classifier):
    with pytest.raises(UserError, match="must be a task model .* Received: a BertBackbone"):
        inspection.inspect_text(classifier.backbone, "good", tokenizer=classifier.tokenizer)


@pytest.mark.parametrize("piece", [3, True])
def test_a_wrong_piece(masked_lm, piece):
    with pytest.raises(UserError, match=rf"in \[0, 3\). Received: piece={piece}"):
        inspection.inspect_text(masked_lm, "good", piece=piece)


def test_numbers_of_numpy_are_numbers(masked_lm):
    row = InspectedRow(masked_lm.tokenizer, (TEXT,), 40)
    target = Target(masked_lm, row, label=np.int64(7), piece=np.int64(2))
    assert (target.number, target.piece) == (7, 2)
    found = inspection.inspect_text(masked_lm, "good", target=np.int32(7), piece=np.int64(1))
    inspection.to_html(found)


def test_a_wrong_head(classifier, found):
    with pytest.raises(UserError, match=r"Received: heads=\[.*\], of which \(2, 0\) is"):
        without_heads(classifier, found.row, found.target, [(0, 1), (2, 0)])


def test_rollout_makes_no_float64_copy_of_the_heads():
    attentions = np.full([2, 32, 128, 128], 1 / 128, np.float32)
    tracemalloc.start()
    attention_rollout(attentions)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < attentions.nbytes


def test_rollout_of_one_head():
    with np.errstate(all="raise"):
        rolled = attention_rollout(np.eye(3)[np.newaxis, np.newaxis])
    np.testing.assert_allclose(rolled[0], np.eye(3))
