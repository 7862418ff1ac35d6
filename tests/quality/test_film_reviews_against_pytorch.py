"""Fine-tuning MiniLM on 1,500 film reviews: within the seed noise of PyTorch, or better.

The same recipe with `transformers` and `torch`: one epoch, batches of 32, at most 128 tokens, the
pooler on [CLS], AdamW with bias correction, decay 0.01 but for biases and LayerNorm, clip at 1,
warm-up over a tenth of the steps and linear decay from 5e-5; three seeds on the same reviews, which
each seed shuffles its own way. About six minutes on two cores.
"""

import math
import statistics

import numpy as np
import pytest

from bert_tf.training.evaluation.probabilities import softmax
from bert_tf.training.evaluation.scores import roc_auc
from research.corpora.film_reviews import LABELS, read_film_reviews, split_by_film

SEEDS = (1, 2, 3)
TRAIN_EXAMPLES = 1500
BATCH, LENGTH, LEARNING_RATE, EPSILON = 32, 128, 5e-5, 1e-6
# Two runs of the same recipe differ by more in one case of a hundred: Student's t, one-sided, with
# (3 - 1) + (3 - 1) degrees of freedom.
T_99 = 3.747

pytestmark = [pytest.mark.full, pytest.mark.peers]


@pytest.fixture(scope="module")
def reviews(materials):
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    splits = split_by_film(read_film_reviews(path))

    def columns(rows):
        return [text for text, _ in rows], np.array([LABELS.index(label) for _, label in rows])

    return columns(splits["train"][:TRAIN_EXAMPLES]), columns(splits["test"])


def ours(minilm, reviews, seed):
    """Logits of the test reviews."""
    import keras

    from bert_tf import BertTextClassifier
    from bert_tf.training import AdamWeightDecay, WarmupLinearDecay

    (texts, labels), (test_texts, _) = reviews
    keras.utils.set_random_seed(seed)
    model = BertTextClassifier.from_pretrained(minilm, labels=list(LABELS), max_length=LENGTH)
    steps = -(-len(texts) // BATCH)
    schedule = WarmupLinearDecay(LEARNING_RATE, steps, steps // 10)
    model.compile(AdamWeightDecay(schedule, bias_correction=True))
    model.fit(texts, labels, batch_size=BATCH, verbose=0)
    return model.predict(test_texts, verbose=0)


def theirs(minilm, reviews, seed):
    """The same in PyTorch."""
    import torch
    import transformers

    (texts, labels), (test_texts, _) = reviews
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=2)

    def tokens(rows, padding=True):
        return tokenizer(
            rows, padding=padding, truncation=True, max_length=LENGTH, return_tensors="pt"
        )

    plain = [p for n, p in model.named_parameters() if "LayerNorm" in n or n.endswith("bias")]
    known = {id(parameter) for parameter in plain}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in known]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        eps=EPSILON,
    )
    steps = -(-len(texts) // BATCH)
    warmup = steps // 10
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / warmup if step < warmup else 1.0 - step / steps
    )
    model.train()
    order = np.random.default_rng(seed).permutation(len(texts))
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        loss = model(**tokens([texts[row] for row in rows]), labels=torch.tensor(labels[rows])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        parts = [
            model(**tokens(test_texts[start : start + 64])).logits.numpy()
            for start in range(0, len(test_texts), 64)
        ]
    return np.concatenate(parts)


def test_as_good_as_pytorch(minilm, reviews):
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="needs transformers and PyTorch")
    _, (_, gold) = reviews
    results = {}
    for name, run in (("bert_tf", ours), ("transformers", theirs)):
        logits = [run(minilm, reviews, seed) for seed in SEEDS]
        results[name] = {
            "accuracy": [float((values.argmax(1) == gold).mean()) for values in logits],
            "auc": [roc_auc(gold, softmax(values)[:, 1]) for values in logits],
        }
    for metric in ("accuracy", "auc"):
        mine, other = results["bert_tf"][metric], results["transformers"][metric]
        noise = math.sqrt((statistics.variance(mine) + statistics.variance(other)) / len(SEEDS))
        print(f"{metric}: bert_tf {mine}, transformers {other}, noise {noise:.4f}")
        assert statistics.fmean(mine) >= statistics.fmean(other) - T_99 * noise, results
