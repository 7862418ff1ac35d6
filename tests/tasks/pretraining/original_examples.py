"""google-research/bert's examples, written again from its published behaviour, for comparison.

In the original's own terms: documents are lists of lists of piece strings, everything is shuffled
as a whole, a random document is retried ten times, tokens are cut one by one. Nothing is shared
with bert_tf.
"""

import collections
import random

Instance = collections.namedtuple("Instance", "tokens segment_ids positions labels is_random_next")


def read_documents(text, tokenize):
    documents = [[]]
    for line in text.split("\n"):
        line = line.strip()
        if not line:
            documents.append([])
            continue
        pieces = tokenize(line)
        if pieces:
            documents[-1].append(pieces)
    return [document for document in documents if document]


def make_instances(
    documents,
    vocabulary,
    seed,
    max_seq_length=128,
    dupe_factor=10,
    short_seq_prob=0.1,
    masked_lm_prob=0.15,
    max_predictions=20,
    whole_words=False,
):
    rng = random.Random(seed)
    documents = list(documents)
    rng.shuffle(documents)
    instances = []
    for _ in range(dupe_factor):
        for number in range(len(documents)):
            for pair in _pairs(documents, number, max_seq_length, short_seq_prob, rng):
                instances.append(
                    _masked(*pair, vocabulary, masked_lm_prob, max_predictions, whole_words, rng)
                )
    rng.shuffle(instances)
    return instances


def _pairs(documents, number, max_seq_length, short_seq_prob, rng):
    document = documents[number]
    room = max_seq_length - 3
    goal = rng.randint(2, room) if rng.random() < short_seq_prob else room
    held = []
    i = 0
    while i < len(document):
        held.append(document[i])
        at_end = i == len(document) - 1
        if at_end or sum(map(len, held)) >= goal:
            cut = rng.randint(1, len(held) - 1) if len(held) >= 2 else 1
            a = sum(held[:cut], [])
            random_next = len(held) == 1 or rng.random() < 0.5
            if random_next:
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != number:
                        break
                b = []
                for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                    b = b + sentence
                    if len(b) >= goal - len(a):
                        break
                i -= len(held) - cut
            else:
                b = sum(held[cut:], [])
            a, b = list(a), list(b)
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            yield a, b, random_next
            held = []
        i += 1


def _masked(a, b, random_next, vocabulary, masked_lm_prob, max_predictions, whole_words, rng):
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    groups = []
    for index, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_words and groups and token.startswith("##"):
            groups[-1].append(index)
        else:
            groups.append([index])
    rng.shuffle(groups)
    goal = min(max_predictions, max(1, round(len(tokens) * masked_lm_prob)))
    output, labels = list(tokens), {}
    for group in groups:
        if len(labels) >= goal:
            break
        if len(labels) + len(group) > goal:
            continue
        for index in group:
            labels[index] = tokens[index]
            if rng.random() < 0.8:
                output[index] = "[MASK]"
            elif rng.random() < 0.5:
                output[index] = tokens[index]
            else:
                output[index] = vocabulary[rng.randint(0, len(vocabulary) - 1)]
    positions = sorted(labels)
    return Instance(output, segment_ids, positions, [labels[p] for p in positions], random_next)
