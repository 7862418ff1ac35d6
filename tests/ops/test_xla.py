"""The native ops compiled by XLA: the same kernels, so the same bits; and models that take them."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import configure
from bert_tf import BertBackbone, BertPretrainer, BertTextClassifier, ops
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.ops import loading, native
from bert_tf.ops.adam_weight_decay import AdamUpdate, adam_weight_decay_all, global_norm
from bert_tf.ops.native import static_shapes
from bert_tf.training import AdamWeightDecay
from tests.ops.backends import BACKENDS
from tests.ops.late_lowerings import compile_another_program_first
from tests.training import processes


@pytest.fixture(autouse=True)
def native_ops():
    if BACKENDS == ("reference",):
        pytest.skip("needs the native ops")
    if not configure.has_xla_headers():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    assert native.compiles_under_xla(), loading.load().reason
    with ops.backend("native"):
        yield


def random(*shape, seed=0):
    return tf.cast(np.random.default_rng(seed).normal(size=shape), tf.float32)


def test_row_splits_are_checked_when_the_program_runs():
    @tf.function(jit_compile=True)
    def run(qkv, row_splits):
        return ops.varlen_attention(qkv, row_splits)

    for row_splits, said in [
        ([0, 3, 2, 5], r"never decrease. Received: row_splits\[1\]=3, row_splits\[2\]=2"),
        ([1, 3, 5], "begin with 0"),
        ([0, 3, 6], "number of rows of `qkv`, 5. Received: row_splits"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
            run(random(5, 3, 2, 8), tf.constant(row_splits))


def test_dynamic_shapes_are_refused():
    @tf.function(jit_compile=True)
    def run(x, bias):
        return ops.fused_bias_gelu(tf.boolean_mask(x, x[:, 0] > 0), bias)

    with pytest.raises(tf.errors.InvalidArgumentError, match="must have a static shape under XLA"):
        run(random(5, 4), random(4))


def test_wrong_shapes_are_refused_by_the_shape_function():
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def run(x, bias):
        return ops.fused_bias_gelu(x, bias)

    message = "`bias` must have the length of the last dimension"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(random(5, 4), random(3))


def _attention_op(head_size=4, splits=(0, 2), distance_bias=(), rotation=(), vectors=(), rows=(),
                  **attributes):  # fmt: skip
    return native.library().bert_tf_varlen_attention(
        tf.zeros([2, 3, 2, head_size]), tf.constant(splits, tf.int32), tf.constant(0, tf.int64),
        list(distance_bias), list(rotation), list(vectors), list(rows), **attributes,
    )  # fmt: skip


def _layer_norm_op(epsilon=0.0, **attributes):
    return native.library().bert_tf_fused_residual_layer_norm(
        tf.zeros([2, 3]), [], [], tf.zeros([3]), tf.zeros([3]), tf.constant(0, tf.int64),
        epsilon=epsilon, **attributes,
    )  # fmt: skip


def _layer_norm_grad_op(**attributes):
    x, row = tf.zeros([2, 3]), tf.zeros([2])
    return native.library().bert_tf_fused_residual_layer_norm_grad(
        x, x, [x], [], tf.zeros([3]), row, row, tf.constant(0, tf.int64), [], **attributes
    )


def _dense_op(epsilon):
    return native.library().bert_tf_fused_dense(
        tf.zeros([2, 4]), tf.zeros([4 * 32]), [], [], [], [], units=3, epsilon=epsilon
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("call, said", [
    *((lambda rate=r: _attention_op(dropout_rate=rate), "dropout_rate` must") for r in (1, 2, -1)),
    *((lambda rate=r: _layer_norm_op(dropout_rate=rate), "dropout_rate` must") for r in (1, -1)),
    (lambda: _layer_norm_grad_op(dropout_rate=2.0, num_dresidual=1), "dropout_rate` must"),
    (lambda: _layer_norm_grad_op(num_dresidual=1), "num_dresidual` must be 0"),
    (lambda: _layer_norm_op(epsilon=-1.0), "epsilon` must be at least 0"),
    (lambda: _layer_norm_op(epsilon=float("nan")), "epsilon` must be at least 0"),
    (lambda: _dense_op(epsilon=-1.0), "epsilon` must be at least 0"),
    (lambda: _attention_op(head_size=0), "head size of at least 1"),
    (lambda: _attention_op(splits=()), "sequences . 1"),
    (lambda: _attention_op(window_size=1, num_global_tokens=-1), "num_global_tokens` must be"),
    (lambda: _attention_op(distance_bias=[tf.zeros([2, 4])]), "an odd number of distances"),
    (lambda: _attention_op(distance_bias=[tf.zeros([3, 5])]), "an odd number of distances"),
    (lambda: _attention_op(distance_bias=[tf.zeros([2, 5])] * 2), "distance_bias` must be 0 or 1"),
    (lambda: _attention_op(rotation=[tf.zeros([2, 3])]), "an even number of columns, at most"),
    (lambda: _attention_op(rotation=[tf.zeros([2, 6])]), r"6\], qkv.shape=\[2,3,2,4\]"),
    (lambda: _attention_op(rotation=[tf.zeros([4])]), r"must have shape \[places, an even"),
    (lambda: _attention_op(rotation=[tf.zeros([2, 4])] * 2), "num_rotation` must be 0 or 1"),
    (lambda: _attention_op(rotation=[tf.zeros([1, 4])]), r"\[1,4\], 2 tokens in"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 1, 2, 4])], rows=[[0]]), r"kinds, 2, heads"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 2, 1, 4])], rows=[[0]]), r"kinds, 2, heads"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 2, 2, 5])], rows=[[0]]), r"kinds, 2, heads"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 2, 2, 4])], rows=[[0, 0]]), "an odd number"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 2, 2, 4])], rows=[[3]]), r"in \[0, 3\)|0 on a"),
    (lambda: _attention_op(vectors=[tf.zeros([3, 2, 2, 4])], rows=[[-1]]), r"in \[0, 3\)|0 on a"),
])  # fmt: skip
def test_the_same_is_refused(call, said, compiled):
    # What only a hand-made graph can ask for: the Python functions check first.
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=said):
        tf.function(call, jit_compile=True)() if compiled else call()


def test_a_head_of_no_size_is_refused_when_the_shape_is_known():
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 3, None, None])])
    def run(qkv):
        return ops.varlen_attention(qkv, [0, 2])

    with pytest.raises(tf.errors.InvalidArgumentError, match="head size of at least 1"):
        run(tf.zeros([2, 3, 2, 0]))


@pytest.mark.parametrize("steps", [None, 3.0])
def test_adam_weight_decay(steps):
    results = []
    for jit_compile in (False, True):
        values = [random(300, 50), 0.1 * random(300, 50), random(300, 50, seed=1) ** 2]
        variables = [tf.Variable(value) for value in values]

        @tf.function(jit_compile=jit_compile)
        def step(gradient, steps):
            ops.adam_weight_decay(*variables, gradient, 0.1, 0.5, 0.01, steps=steps)
            return variables[0] + 0.0  # the value that the update left

        for _ in range(2):
            seen = step(random(300, 50, seed=2), None if steps is None else tf.constant(steps))
        np.testing.assert_array_equal(seen.numpy(), variables[0].numpy())
        results.append([variable.numpy() for variable in variables])
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_optimizer_step_of_several_variables():
    shapes, results = [(300, 50), (0,), (4097,), (7,)], []
    for jit_compile in (False, True):
        variables = [
            [tf.Variable(random(*shape, seed=seed) ** 2) for seed in range(3)] for shape in shapes
        ]

        @tf.function(jit_compile=jit_compile)
        def step(first, *others):
            gradients = [tf.cast(tf.cast(first, tf.bfloat16), tf.float32), *others]
            norm = global_norm(gradients)
            updates = [
                AdamUpdate(*of, gradient, 0.5**i, 0.01 * i)
                for i, (of, gradient) in enumerate(zip(variables, gradients))
            ]
            adam_weight_decay_all(updates, 0.1, 1.0 / norm, 0.9, 0.999, 1e-6, None)
            return norm

        norms = [step(*(random(*shape, seed=4) for shape in shapes)) for _ in range(2)]
        results.append([*norms, *[variable for of in variables for variable in of]])
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("changes, said", [
    ({"gradients": [tf.ones([4])]}, "shape of their gradient"),
    ({"gradients": [tf.ones([3])] * 2}, "one tensor for each variable"),
    ({"learning_rates": tf.ones([2])}, r"`learning_rates` must have shape \[1\]"),
    ({"weight_decays": tf.ones([])}, r"`weight_decays` must have shape \[1\]"),
    ({"gradient_scale": tf.ones([1])}, r"`gradient_scale` must have shape \[\]"),
    ({"steps": tf.ones([1])}, r"`steps` must have shape \[\]"),
])  # fmt: skip
def test_an_optimizer_step_that_only_a_graph_made_by_hand_asks_for(changes, said, jit_compile):
    variables = [tf.Variable(tf.ones([3])) for _ in range(3)]
    names, one = ("variables", "means", "squares"), tf.ones([])
    arguments = {name: [of.handle] for name, of in zip(names, variables)}
    arguments |= {"gradients": [tf.ones([3])], "learning_rates": tf.ones([1])}
    arguments |= {"weight_decays": tf.ones([1]), "gradient_scale": one, "steps": one}
    options = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6}

    @tf.function(jit_compile=jit_compile)
    def run():
        ops.library().bert_tf_adam_weight_decay(**arguments | changes, **options)

    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=said):
        run()


def test_a_variable_twice_is_refused():
    variable, m = tf.Variable(tf.ones([3])), tf.Variable(tf.ones([3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="different variables"):
        ops.adam_weight_decay(variable, m, m, tf.ones([3]), learning_rate=0.1)


def test_it_compiles_after_other_programs_were(tmp_path):
    # TensorFlow looks for what REGISTER_XLA_OP registers once, at the first compilation. In a
    # separate process, because this one has loaded the lowerings.
    process = processes.start(compile_another_program_first, tmp_path / "text")
    assert process.wait() == 0, process.text()


@pytest.mark.parametrize(
    "apart, count, distinct",
    [
        (True, 16, [0, 3, 4, 5, 10, 11, 12, 13, 14, 15]),  # B T + 1, whatever the mask
        (False, 7, [0, 3, 5, 10, 15]),  # 2 B + 1
    ],
)
def test_packed_in_place_is_packed_with_padding_after(apart, count, distinct):
    mask = np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)
    layout = TokenLayout.packed_in_place(tf.constant(mask), isolate_padding=apart)
    splits = layout.row_splits.numpy()
    assert splits.shape == (count,) and (np.diff(splits) >= 0).all()
    assert np.unique(splits).tolist() == distinct
    values = np.arange(15.0).reshape(3, 5, 1)
    rows = layout.to_rows(tf.constant(values))
    assert rows[:3, 0].numpy().tolist() == [1, 2, 4]
    np.testing.assert_array_equal(layout.to_batch(rows), values * mask[..., None])


@pytest.fixture
def one_block(tiny_config):
    return dataclasses.replace(tiny_config, num_hidden_layers=1)


@pytest.fixture
def examples():
    rng = np.random.default_rng(0)
    lengths = np.array([9, 5, 1, 7])
    return {
        "token_ids": rng.integers(5, 64, (4, 9)).astype(np.int32),
        "padding_mask": np.arange(9) >= 9 - lengths[:, None],  # on the left
    }


@pytest.mark.parametrize("causal", [False, True])
def test_a_backbone_compiles_with_native_attention(tiny_config, examples, causal):
    backbone = BertBackbone(tiny_config, causal=causal)
    expected = backbone(examples)

    def run(inputs):
        with static_shapes():
            return backbone(inputs)

    compiled = tf.function(run, jit_compile=True)
    for name, value in compiled(examples).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-5, err_msg=name)
    program = compiled.experimental_get_compiler_ir(examples)(stage="hlo")
    for op in ("VarlenAttention", "FusedBiasGelu", "FusedResidualLayerNorm"):
        assert f'custom_call_target="BertTf>{op}"' in program


def trained(make_model, x, y, jit_compile):
    """Losses and weights of two steps, with the dropout of the native ops."""
    keras.utils.set_random_seed(0)
    model = make_model()
    # XLA draws other bits for TensorFlow's own dropout.
    model.backbone.embeddings.dropout.rate = 0.0
    model.compile(AdamWeightDecay(1e-3), jit_compile=jit_compile)
    with model._tracing():
        assert ops.active_backend() == "native"
    history = model.fit(x, y, batch_size=2, epochs=1, shuffle=False, verbose=0).history
    return history["loss"], {weight.path: weight.numpy() for weight in model.trainable_weights}


def assert_trains_the_same(make_model, x, y):
    (loss, weights), (wanted_loss, wanted) = (
        trained(make_model, x, y, jit_compile) for jit_compile in (True, False)
    )
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
    for (path, got), value in zip(weights.items(), wanted.values(), strict=True):
        np.testing.assert_allclose(got, value, atol=2e-5, err_msg=path)


def test_a_classifier_trains_and_predicts_the_same(one_block, examples):
    # Without padding the rows, and so the masks of the dropout, are those of the packed layout.
    x = {"token_ids": examples["token_ids"]}

    def make_model():
        return BertTextClassifier(BertBackbone(one_block), num_classes=2, dropout=0.0)

    assert_trains_the_same(make_model, x, np.array([0, 1, 1, 0]))
    model = make_model()
    expected = model.predict(examples, verbose=0)
    model.compile(jit_compile=True)
    np.testing.assert_allclose(model.predict(examples, verbose=0), expected, atol=1e-5)


@pytest.mark.full
def test_a_pretrainer_trains_the_same(one_block, examples):
    rng = np.random.default_rng(1)
    x = {"token_ids": examples["token_ids"], "masked_positions": rng.integers(0, 9, (4, 3))}
    y = {
        "masked_ids": rng.integers(5, 64, (4, 3)).astype(np.int32),
        "masked_weights": np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([0, 1, 1, 0], np.int32),
    }
    assert_trains_the_same(lambda: BertPretrainer(BertBackbone(one_block)), x, y)


def test_without_lowerings_the_reference_is_compiled(tiny_config, monkeypatch):
    monkeypatch.setattr(native, "compiles_under_xla", lambda: False)
    model = BertTextClassifier(BertBackbone(tiny_config), num_classes=2)
    model.compile("sgd", jit_compile=True)
    with model._tracing():
        assert ops.active_backend() == "reference"
