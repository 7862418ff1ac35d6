"""What the estimators share: they fine-tune a checkpoint in `fit` and predict with the model.

Keras has `keras.wrappers.SKLearnClassifier`, which does not serve: it turns `X` into numbers, so it
refuses text, it has no `predict_proba`, and a fitted one cannot be pickled with its tokenizer.
"""

import pathlib
import random
import tempfile
from typing import Any

import keras
import numpy as np

from bert_tf import BertTextClassifier
from bert_tf.base.optional_packages import require_package
from bert_tf.training import AdamWeightDecay, WarmupLinearDecay

_BaseEstimator = require_package("sklearn.base", "bert_tf.sklearn").BaseEstimator
_WARMUP = 0.1  # of the steps; google-research/bert


class TextEstimator(_BaseEstimator):
    """An estimator of texts or pairs: `X` is what `fit` of a `BertTextClassifier` takes as text.

    `clone`, pipelines and searches make unfitted copies, which hold the arguments only. A fitted
    estimator is pickled with the files of its model: load pickles that you trust only. A model
    computes on all cores, so searches need no `n_jobs`; each of their processes imports TensorFlow.

    Args:
        checkpoint: What `BertTextClassifier.from_pretrained` opens; `fit` begins with it.
        epochs, batch_size: See `keras.Model.fit`.
        learning_rate: The peak rate of `AdamWeightDecay`, after a warm-up of a tenth of the steps.
        options: Further options of `from_pretrained`, such as `{"max_length": 128}`.
        fit_options: Further arguments of `fit`, such as `{"class_weight": "balanced"}`.
        random_state: An integer makes `fit` repeatable. None draws from the global generators.

    Attributes:
        model_: The trained `BertTextClassifier`.
    """

    def __init__(
        self,
        checkpoint: str,
        epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 5e-5,
        options: dict[str, Any] | None = None,
        fit_options: dict[str, Any] | None = None,
        random_state: int | None = None,
    ):
        self.checkpoint = checkpoint
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.options = options
        self.fit_options = fit_options
        self.random_state = random_state

    def _train(self, X, y, sample_weight, **head):
        states = random.getstate(), np.random.get_state()
        if self.random_state is not None:
            keras.utils.set_random_seed(self.random_state)
        options = {**head, **(self.options or {})}
        model = BertTextClassifier.from_pretrained(self.checkpoint, **options)
        model.compile(AdamWeightDecay(WarmupLinearDecay(self.learning_rate, warmup=_WARMUP)))
        options = {"epochs": self.epochs, "batch_size": self.batch_size, "verbose": 0}
        options |= self.fit_options or {}
        model.fit(X, y, sample_weight=sample_weight, **options)
        if self.random_state is not None:  # the splits of a cross-validation come from them
            random.setstate(states[0])
            np.random.set_state(states[1])
        self.model_ = model
        return self

    def _outputs(self, X):
        """Returns probabilities `[n, C]`, or numbers `[n, 1]`."""
        require_package("sklearn.utils.validation", "bert_tf.sklearn").check_is_fitted(self)
        return self.model_.probabilities(self.model_.predict(X, verbose=0))

    def __getstate__(self):
        state = super().__getstate__()
        if "model_" in state:
            with tempfile.TemporaryDirectory() as directory:
                state["model_"].save_pretrained(directory, format="auto")
                files = pathlib.Path(directory).iterdir()
                state = {**state, "model_": {path.name: path.read_bytes() for path in files}}
        return state

    def __setstate__(self, state):
        if "model_" in state:
            with tempfile.TemporaryDirectory() as directory:
                for name, content in state["model_"].items():
                    (pathlib.Path(directory) / name).write_bytes(content)
                state = {**state, "model_": BertTextClassifier.from_pretrained(directory)}
        super().__setstate__(state)
