"""Names of keras-hub and transformers, `help` and `repr`: what a new user tries first."""

import inspect
import pydoc
import re

import keras
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.base.hints import HINTS, describe
from bert_tf.errors import UserError
from tests.example_files import write_docstring_files

OPENED = (bert_tf.BertBackbone, bert_tf.BertTextClassifier, bert_tf.BertSentenceEncoder)


@pytest.fixture(scope="module")
def path(tmp_path_factory, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("hints")
    write_docstring_files(directory, tiny_vocabulary)
    return directory / "reviews"


@pytest.fixture(scope="module")
def model(path):
    return bert_tf.BertTextClassifier.from_pretrained(path)


def test_help_shows_the_example_and_the_classes():
    assert "BertTextClassifier.from_pretrained" in bert_tf.__doc__
    for name in bert_tf.tasks.NAMES:
        assert re.search(rf"^    {name} +Bert\w+$", bert_tf.__doc__, re.MULTILINE)
    assert bert_tf.__version__.count(".") == 2


@pytest.mark.parametrize("kind", OPENED)
def test_the_signature_of_from_pretrained_has_the_options(kind):
    parameters = inspect.signature(kind.from_pretrained).parameters
    assert next(iter(parameters)) == "path" and "options" not in parameters
    assert {"config_file", "quantization", "num_encoder_layers"} <= {*parameters}
    if kind is bert_tf.BertTextClassifier:
        assert {"labels", "num_classes", "pooling", "max_length", "lowercase"} <= {*parameters}
        assert "num_classes" in pydoc.plain(pydoc.render_doc(kind.from_pretrained))


def test_a_class_of_ones_own_opens_with_its_options(path):
    @keras.saving.register_keras_serializable(package="hints")
    class Own(bert_tf.BertTextClassifier):
        def __init__(self, backbone, shown=3, **kwargs):
            super().__init__(backbone, **kwargs)
            self.shown = shown

        @classmethod
        def from_pretrained(cls, path, **options):
            return super().from_pretrained(path, **options)

    assert type(Own.from_pretrained(path, labels=["bad", "good"])) is Own


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"num_labels": 2}, "Did you mean `num_classes`?"),
        ({"max_lenght": 8}, "Did you mean `max_length`?"),
        ({"id2label": {}}, "`labels` is the list of their names."),
    ],
)
def test_an_unknown_option(options, hint, path):
    with pytest.raises(UserError, match="must be among") as caught:
        bert_tf.BertTextClassifier.from_pretrained(path, **options)
    assert str(caught.value).endswith(hint)


def test_an_unknown_attribute(model):
    encoder = bert_tf.BertSentenceEncoder(model.backbone)
    for owner, name in (
        (model.backbone, "enable_lora"),
        (model.backbone, "input"),
        (model, "output"),
        (encoder, "similarity"),
        (encoder, "max_seq_length"),
        (model.tokenizer, "batch_decode"),
        (bert_tf.BertBackbone, "from_preset"),
        (model.tokenizer, "from_preset"),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(owner, name)("bert_base_en") if name == "from_preset" else getattr(owner, name)
        assert str(caught.value).endswith(HINTS[name])
    for owner in (model, model.tokenizer):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
            owner.nothing  # noqa: B018
        assert not hasattr(owner, "batch_decode")


def test_an_unknown_argument_of_a_tokenizer(model):
    with pytest.raises(TypeError, match="return_tensors. Leave it out"):
        model.tokenizer(["a"], return_tensors="tf")
    with pytest.raises(TypeError, match="Did you mean `max_length`"):
        model.tokenizer(["a"], max_lenght=3)


def test_repr(model):
    limit = model.backbone.config.max_position_embeddings
    assert repr(model) == (
        f"<BertTextClassifier labels=['bad', 'good'], pooling='cls', max_length={limit}, "
        "cased=False>"
    )
    assert repr(model.tokenizer) == "<BertTokenizer vocab_size=64, cased=False, max_length=None>"
    assert describe(model, {}) == "<BertTextClassifier>"
    assert "hidden_size=" in repr(model.backbone) and repr(model.backbone)[0] == "<"
    tokens = {"token_ids": tf.constant([[5]])}
    many = bert_tf.BertTextClassifier(model.backbone, labels=[f"label {n}" for n in range(99)])
    assert many(tokens).shape == (1, 99) and len(repr(many)) < 250


def test_summary_shows_shapes(model):
    pooled = bert_tf.BertTextClassifier(model.backbone, num_classes=2, pooling="mean_max")
    for shown, shapes in (
        (model, ["(None, None, 32)", "(None, 32)", "(None, 2)"]),
        (pooled, ["(None, None, 32)", "(None, 64)", "(None, 64)", "(None, 2)"]),
        (model.backbone, ["(None, None, 32)", "(None, None, 32)", "(None, 32)"]),
    ):
        lines = []
        shown.summary(print_fn=lines.append, line_length=120)
        assert re.findall(r"\(None, [^()]*\)", "".join(lines)) == shapes
        assert not hasattr(model.backbone, "output_shape")
