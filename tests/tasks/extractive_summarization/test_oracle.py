"""The sentences that are most like a reference summary."""

import collections
import random

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.extractive_summarization import oracle_labels
from bert_tf.tasks.extractive_summarization.selection import words_of

WORDS = ["a", "b", "c", "d", "e", "f"]


def grams(sentences, n):
    """The n-grams of sentences of words."""
    return collections.Counter(
        gram for words in sentences for gram in zip(*(words[start:] for start in range(n)))
    )


def rouge(chosen, reference):
    """ROUGE-1 F and ROUGE-2 F, by their definition, added."""
    total = 0.0
    for n in (1, 2):
        found, wanted = grams(chosen, n), grams([reference], n)
        hits = sum((found & wanted).values())
        if hits:
            precision, recall = hits / sum(found.values()), hits / sum(wanted.values())
            total += 2 * precision * recall / (precision + recall)
    return total


def greedy(sentences, reference, count):
    """The labels by trying every sentence in every step."""
    chosen, best = [], 0.0
    while len(chosen) < count:
        scores = {
            number: rouge([sentences[i] for i in [*chosen, number]], reference)
            for number in range(len(sentences))
            if number not in chosen
        }
        number = max(scores, key=scores.get, default=None)
        if number is None or scores[number] <= best + 1e-12:
            break
        best = scores[number]
        chosen.append(number)
    return [int(number in chosen) for number in range(len(sentences))]


def test_labels_are_those_of_a_search_by_the_definition():
    generator = random.Random(1)

    def sentence():
        return generator.choices(WORDS, k=generator.randint(0, 7))

    documents = [[sentence() for _ in range(generator.randint(0, 6))] for _ in range(200)]
    references = [sentence() for _ in documents]
    for count in (1, 3):
        labels = oracle_labels(
            [[" ".join(words) for words in document] for document in documents],
            [" ".join(reference) for reference in references],
            count,
        )
        expected = [greedy(*pair, count) for pair in zip(documents, references)]
        assert [row.tolist() for row in labels] == expected
        assert max(map(sum, expected)) == count


def test_no_sentence_that_adds_nothing():
    document = ["Ada wrote a program.", "It rained.", "A program."]
    assert oracle_labels([document], ["Ada wrote a program"])[0].tolist() == [1, 0, 0]
    assert oracle_labels([document], ["Nobody knows"])[0].tolist() == [0, 0, 0]
    assert oracle_labels([document], [""])[0].tolist() == [0, 0, 0]
    assert oracle_labels([], []) == []
    with pytest.raises(UserError, match="1 documents, 0 summaries"):
        oracle_labels([document], [])


def test_words():
    words = words_of(["Don't say 3.5_m!", "猫が好き。", "Élan NAÏVE", " ", ""]).to_list()
    assert [[word.decode() for word in row] for row in words] == [
        ["don", "t", "say", "3", "5", "m"],
        ["猫", "が", "好", "き"],
        ["élan", "naïve"],
        [],
        [],
    ]


def test_labels_are_those_of_rouge_score():
    scorers = pytest.importorskip("rouge_score.rouge_scorer", reason="needs rouge-score")
    scorer = scorers.RougeScorer(["rouge1", "rouge2"])
    generator = random.Random(2)
    for _ in range(50):
        document = [" ".join(generator.choices(WORDS, k=5)) + "." for _ in range(4)]
        reference = " ".join(generator.choices(WORDS, k=4))
        scores = [scorer.score(reference, sentence) for sentence in document]
        totals = [score["rouge1"].fmeasure + score["rouge2"].fmeasure for score in scores]
        (labels,) = oracle_labels([document], [reference], num_sentences=1)
        assert not labels.any() if not max(totals) else totals[np.argmax(labels)] == max(totals)
