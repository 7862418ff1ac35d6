"""Knowledge distillation: a student learns from a teacher, and from labels if there are some.

Glossary: `B` texts, `T` sequence length, `N` heads, `H` hidden size.
"""

import types

import keras
import tensorflow as tf

from bert_tf import tasks
from bert_tf.adapt.distillation_losses import (
    attention_losses,
    check_pair,
    soft_losses,
    squared_differences,
)
from bert_tf.adapt.layer_dropping import spread_layers
from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.token_inputs import PACKED_PLACES
from bert_tf.layers.attention.token_layout import packed_places
from bert_tf.layers.dense import Dense
from bert_tf.models.task_model import TaskModel
from bert_tf.models.task_spec import VECTORS
from bert_tf.tasks.token_classification.model import BertTokenClassifier
from bert_tf.training.losses.token_loss import token_weights
from bert_tf.training.training_model import TrainingModel

DISTILLATION_TEMPERATURE = 2.0  # DistilBERT's training code
_ONLY_STUDENT = (
    "The model to {} must be the student. Received: a DistillationModel. Call "
    "`student.{}(directory)`."
)


class DistillationModel(TrainingModel):
    """Trains a student on the outputs of a teacher.

    The loss is the sum of these means, where w is `logits_weight`:

    - `task_loss`, times 1 - w: the student's own loss on the labels;
    - `logits_loss`, times w: T² · KL(teacher || student) of the class probabilities at temperature
      T; for several labels, T² · the binary cross-entropy with the teacher's probabilities at T;
      for numbers and sentence vectors, the mean squared difference;
    - `hidden_loss`, times `hidden_weight`: the mean squared difference of the outputs of mapped
      blocks at real tokens; if the hidden sizes differ, after a trained projection of the
      student's outputs, which is not part of the student;
    - `attention_loss`, times `attention_weight`: KL(teacher || student) of the attention of real
      tokens in mapped blocks, for each head, or for the mean over heads if their numbers differ.

    The first two are means over texts, or over words in token classification; the last two are
    means over real tokens and pairs of blocks. Each is in the logs, and sample weights apply to
    all. The teacher computes without dropout, is not trained, and is not part of this model's
    variables. A student's `lm_loss_weight` has no effect here.

    Args:
        student: The model that learns, with the teacher's vocabulary and labels: a text or token
            classifier, sentence encoder or model of another task whose spec has `distilled_as`.
            `student_from_teacher` makes one.
        teacher: A trained model of the same class.
        temperature: T, above 0.
        logits_weight: w in [0, 1]. With 1, labels are not needed.
        hidden_weight: At least 0.
        attention_weight: At least 0. Above 0, student and teacher compute with padding, because the
            fused attention returns no probabilities.
        layer_map: Some of the student's blocks, from 0, each with the teacher's block that it is
            compared with. None maps all to blocks at even distances (`spread_layers`).

    Raises:
        UserError: If an argument is out of range, or the two models do not fit (`check_pair`).

    Example:
        >>> teacher = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> student = bert_tf.adapt.student_from_teacher(teacher, num_hidden_layers=1)
        >>> model = bert_tf.adapt.DistillationModel(
        ...     student, teacher, logits_weight=0.9, hidden_weight=1.0
        ... )
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5), metrics=["accuracy"])
        >>> model.fit(texts, labels)
        >>> student.save_pretrained("small_reviews/")

    Reference: Hinton et al. 2015 (arXiv 1503.02531); Jiao et al. 2020 (TinyBERT, arXiv 1909.10351),
    section 3, for hidden states and the map; for attention and vectors `distillation_losses`.
    """

    def __init__(
        self,
        student: TaskModel,
        teacher: TaskModel,
        temperature: float = DISTILLATION_TEMPERATURE,
        logits_weight: float = 0.5,
        hidden_weight: float = 0.0,
        attention_weight: float = 0.0,
        layer_map: dict[int, int] | None = None,
        **kwargs,
    ):
        super().__init__(**{"dtype": student.dtype_policy, **kwargs})
        self._fixed_options |= self._options - {"temperature"}
        weights = (logits_weight, hidden_weight, attention_weight)
        if not temperature > 0 or not 0 <= logits_weight <= 1 or not min(weights) >= 0:
            raise UserError(
                "`temperature` must be above 0, `logits_weight` in [0, 1], `hidden_weight` and "
                f"`attention_weight` at least 0. Received: {temperature=}, {logits_weight=}, "
                f"{hidden_weight=}, {attention_weight=}"
            )
        check_pair(student, teacher)
        if logits_weight:
            teacher.require_trained_heads("a teacher")
        if logits_weight < 1 and tasks.spec_of(type(student)).distilled_as == VECTORS:
            raise UserError(
                f"`logits_weight` must be 1 for a {type(student).__name__}, which learns its "
                f"teacher's vectors, without labels. Received: {logits_weight=}"
            )
        self.student = student
        self.spec, self._heads = student.spec, student._heads
        self._known.wrapped = (student,)
        # Keras looks for layers and variables in all attributes, but not in such an object.
        self._untracked = types.SimpleNamespace(teacher=teacher, trained_weights=())
        self.temperature = temperature
        self.logits_weight = logits_weight
        self.hidden_weight = hidden_weight
        self.attention_weight = attention_weight
        compares_blocks = hidden_weight or attention_weight
        self.layer_map = _checked_map(layer_map, student, teacher) if compares_blocks else {}
        config, width = student.backbone.config, teacher.backbone.config.hidden_size
        self.hidden_projection = None
        if hidden_weight and config.hidden_size != width:
            options = {"dtype": "float32", "name": "hidden_projection"}
            self.hidden_projection = Dense(width, config.initializer_range, **options)
            self.hidden_projection.build([None, config.hidden_size])
        self._soft_losses = soft_losses(student)
        self._output_unit = "words" if isinstance(student, BertTokenClassifier) else "rows"
        factors = zip(("task", "logits", "hidden", "attention"), (1.0 - logits_weight, *weights))
        self._factors = {name: factor for name, factor in factors if factor}
        self._means = {name: keras.metrics.Mean(name=f"{name}_loss") for name in self._factors}
        if "task" in self._factors and isinstance(student, BertTokenClassifier):
            self.accuracy = student.accuracy  # counted with its loss
        self.built = True

    @property
    def teacher(self) -> TaskModel:
        """The teacher."""
        return self._untracked.teacher

    @property
    def backbone(self):
        """The student's backbone, which `freeze_layers` and `GradualUnfreezing` change."""
        return self.student.backbone

    @property
    def lora(self):
        """The student's LoRA options; `freeze_layers` refuses a model with LoRA."""
        return self.student.lora

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """Compiles this model and the student, for its loss and its `evaluate`.

        Args:
            optimizer: See `keras.Model.compile`.
            loss: The student's loss on the labels, as its own `compile` takes it.
            metrics: Metrics of the student's outputs and the labels.
            **kwargs: See `TrainingModel.compile`.

        Raises:
            UserError: If a loss is given although labels have no weight (`logits_weight=1`).
        """
        # Its loss also depends on these.
        names = ("jit_compile", "gradient_accumulation_steps", "weighted_metrics")
        options = {name: kwargs[name] for name in names if name in kwargs}
        if loss != "auto":
            rule = "must be 'auto' where labels have no weight"
            is_valid = "task" in self._factors
            require(is_valid, rule, UserError, loss=loss, logits_weight=self.logits_weight)
            options["loss"] = loss
        self.student.compile(metrics=metrics, **options)
        super().compile(optimizer, metrics=metrics, **kwargs)
        self._untracked.trained_weights = ()

    def call(self, inputs, training=False):
        return self.student(inputs, training=training)

    def forward(self, x, y, training):
        """Computes student and teacher on the same tokens. Each is a dictionary of tensors.

        Raises:
            UserError: If a row has several texts.
        """
        if training:
            self._require_same_weights()
        tokens = self._tokens(x)
        if tokens["token_ids"].shape.rank != 2:
            expected = "be [B, T], a single text or pair in each row"
            raise user_error("`token_ids`", expected, f"shape={tokens['token_ids'].shape}")
        student = self._compared(self.student, tokens, training, self.layer_map.keys())
        teacher = self._compared(self.teacher, tokens, False, self.layer_map.values())
        return {"student": student, "teacher": tf.nest.map_structure(tf.stop_gradient, teacher)}

    def _require_same_weights(self):
        known = self._untracked.trained_weights or self.student.variables
        self._untracked.trained_weights = known
        if set(map(id, known)) != set(map(id, self.student.variables)):
            raise UserError(
                "The student must have the weights that the optimizer has begun to train. "
                "Received: others (heads pruned, LoRA enabled or merged, or quantized since). "
                "Compile the distillation again."
            )

    def _compared(self, model, tokens, training, blocks):
        options = model.backbone_options()
        if self.hidden_weight:
            options["output_hidden_states"] = True
        if self.attention_weight:
            options["output_attentions"] = True
        outputs = model.backbone(tokens, training=training, **options)
        compared = {"logits": model.head(outputs, tokens, training=training)}
        if self.hidden_weight:  # the first are the embeddings
            compared["hidden_states"] = [outputs["hidden_states"][1 + block] for block in blocks]
        if self.attention_weight:
            compared["attentions"] = [outputs["attentions"][block] for block in blocks]
        return compared

    def _tokens(self, x):
        tokens = self.student.tokens_of(x)
        # One mask for both: they may have different padding ids.
        mask = self.backbone.padding_mask_of(tokens)
        if PACKED_PLACES in tokens and self.backbone.config.ignored_token_ids:
            places = packed_places(mask, tokens[PACKED_PLACES].shape[0])
            tokens = {**tokens, PACKED_PLACES: places}
        return {**tokens, "padding_mask": mask}

    def loss_denominators(self, x, y, sample_weight):
        rule = "must be labels, unless logits_weight=1 and only the teacher's outputs count"
        is_valid = y is not None or ("task" not in self._factors and self._output_unit != "words")
        require(is_valid, rule, UserError, y=None, logits_weight=self.logits_weight)
        weights = self.student.loss_denominators(x, y, sample_weight)
        if self.layer_map:
            real = self._tokens(x)["padding_mask"]
            weights["tokens"] = tf.reduce_sum(tf.cast(real, tf.float32))
        return weights

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        student, teacher = y_pred["student"], y_pred["teacher"]
        parts = self.loss_denominators(x, y, sample_weight)
        loss = 0.0
        for name, factor in self._factors.items():
            unit = "tokens" if name in ("hidden", "attention") else self._output_unit
            if name == "task":
                share = self.student.partial_loss(
                    x, y, student["logits"], sample_weight, training, totals
                )
            else:
                weights = self._counts(unit, x, y, sample_weight)
                losses = self._distances(name, student, teacher) * weights
                share = tf.math.divide_no_nan(tf.reduce_sum(losses), totals[unit])
            # The mean over these examples, so that the logs show the mean over all.
            mean = tf.math.divide_no_nan(share * totals[unit], parts[unit])
            self._means[name].update_state(mean, sample_weight=parts[unit])
            loss += factor * share
        return loss

    def _distances(self, name, student, teacher):
        """Returns float32 `[B]`, or `[B, T]` where words or tokens are compared."""
        if name == "logits":
            return self._soft_losses(student["logits"], teacher["logits"], self.temperature)
        if name == "hidden":
            ours, theirs = student["hidden_states"], teacher["hidden_states"]
            ours, compare = [self._projected(states) for states in ours], squared_differences
        else:
            ours, theirs, compare = student["attentions"], teacher["attentions"], attention_losses
        return tf.add_n([compare(*pair) for pair in zip(ours, theirs)]) / len(self.layer_map)

    def _counts(self, unit, x, y, sample_weight):
        """Returns the weight of each loss: `[B]`, for words and tokens `[B, T]`."""
        if unit == "words":
            return token_weights(y, sample_weight)
        real = tf.cast(self._tokens(x)["padding_mask"], tf.float32)  # [B, T]
        rows = tf.ones_like(real[:, 0])  # [B]
        if sample_weight is not None:
            rows = tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        return rows if unit == "rows" else real * rows[:, tf.newaxis]

    def _projected(self, states):
        """Projects hidden states to the teacher's size: `[B, T, H]` -> `[B, T, H']`."""
        if self.hidden_projection is None:
            return states
        rows = tf.reshape(tf.cast(states, tf.float32), [-1, states.shape[-1]])  # [B * T, H]
        rows = self.hidden_projection(rows)
        return tf.reshape(rows, tf.concat([tf.shape(states)[:2], [rows.shape[-1]]], axis=0))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if not keras_compat.has_compiled_metrics(self):
            return
        if y is None:
            raise UserError("`metrics` must be None without labels. Received: y=None")
        logits = y_pred["student"]["logits"] if isinstance(y_pred, dict) else y_pred
        super().compute_metrics(x, y, logits, sample_weight=sample_weight)

    def read_labels(self, y, x):
        """Returns labels as the student reads them; with `logits_weight=1` they can be omitted."""
        return self.student.read_labels(self._labels_or_any(x, y), x)

    def class_weights(self, class_weight):
        return self.student.class_weights(class_weight)

    def _labels_or_any(self, x, y):
        """Returns `y`, or any labels where words need none: labels show which tokens count."""
        is_needed = "task" in self._factors or self._output_unit != "words"
        if y is None and not is_needed and isinstance(x, TextColumns):
            return [[self.student.labels[0]] * len(words) for words in x[0]]
        return y

    def get_config(self):
        raise UserError(_ONLY_STUDENT.format("save", "save_pretrained"))

    def export(self, *args, **kwargs):
        raise UserError(_ONLY_STUDENT.format("export", "export"))


def _checked_map(layer_map, student, teacher) -> dict[int, int]:
    ours, theirs = (model.backbone.config.num_hidden_layers for model in (student, teacher))
    if layer_map is None:
        return dict(enumerate(spread_layers(ours, theirs)))
    fits = all(0 <= a < ours and 0 <= b < theirs for a, b in layer_map.items())
    if not layer_map or not fits:
        raise UserError(
            f"`layer_map` must lead from some of the student's blocks, 0 to {ours - 1}, to the "
            f"teacher's, 0 to {theirs - 1}. Received: {layer_map=}"
        )
    return dict(layer_map)
