"""The best sentences of documents, with and without trigram blocking."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.extractive_summarization.selection import join_sentences, select_sentences


def selected_by_hand(sentences, scores, count, blocking):
    """Sentence by sentence, the best first."""
    chosen, seen = [], set()
    for number in sorted(range(len(sentences)), key=lambda number: -scores[number]):
        words = sentences[number].split()
        trigrams = set(zip(words, words[1:], words[2:])) if blocking else set()
        if len(chosen) < count and words and not trigrams & seen:
            chosen.append(number)
            seen |= trigrams
    return [number in chosen for number in range(len(sentences))]


@pytest.mark.parametrize("blocking", [True, False])
def test_any_documents(blocking):
    generator = random.Random(3)
    documents = [
        [" ".join(generator.choices("abc", k=generator.randint(0, 5))) for _ in range(size)]
        for size in [0, 1, 2, 9, 0, *generator.choices(range(8), k=40)]
    ]
    sizes = np.array([len(document) for document in documents])
    scores = np.array(generator.choices(range(10), k=sizes.sum()), np.float32)  # some are equal
    sentences = tf.ragged.constant(documents, tf.string, row_splits_dtype=tf.int64)
    for count in (1, 3, 100):
        received = select_sentences(sentences, tf.constant(scores), count, blocking)
        expected = [
            selected_by_hand(document, part, count, blocking)
            for document, part in zip(documents, np.split(scores, np.cumsum(sizes)[:-1]))
        ]
        assert received.numpy().tolist() == sum(expected, [])


def test_a_repeated_sentence_gives_its_place_to_the_next():
    document = ["The good film ended.", "A film: the GOOD film!", "It rains."]
    sentences = tf.ragged.constant([document, document[:1]], row_splits_dtype=tf.int64)
    scores = tf.constant([3.0, 2.0, 1.0, 0.5])
    for blocking, second in ((True, document[2]), (False, document[1])):
        selected = select_sentences(sentences, scores, 2, blocking)
        kept = tf.ragged.boolean_mask(sentences, sentences.with_values(selected))
        summaries = [text.decode() for text in join_sentences(kept).numpy()]
        assert summaries == [f"{document[0]} {second}", document[0]]  # no block across documents


def test_joined():
    sentences = tf.ragged.constant([["It rains.", "Why?"], [], ["猫。", "犬", "A cat.", "猫"]])
    texts = [text.decode() for text in join_sentences(sentences).numpy()]
    assert texts == ["It rains. Why?", "", "猫。犬A cat. 猫"]
