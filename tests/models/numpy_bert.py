"""BERT's pre-training in float64 NumPy: loss, its gradient by hand, the optimizer.

Written from the paper and google-research/bert; shares nothing with the package. Its gradient is
checked by finite differences in test_pretrainer_parity.py.
"""

import numpy as np
from scipy.special import erf

LAYER_NORM_EPSILON = 1e-12


def variables_of(model) -> dict:
    """The Keras variables of a `BertPretrainer` under the names that `NumpyPretrainer` uses."""
    embeddings = model.backbone.embeddings
    variables = {
        "word": embeddings.word_embeddings,
        "position": embeddings.position_embeddings,
        "segment": embeddings.segment_embeddings,
    }

    def add(prefix, layer, names):
        variables.update({f"{prefix}/{name}": getattr(layer, name) for name in names})

    dense, norm = ("kernel", "bias"), ("gamma", "beta")
    add("embeddings/norm", embeddings.layer_norm, norm)
    for index, block in enumerate(model.backbone.encoder.blocks):
        add(f"{index}/qkv", block.attention.query_key_value, dense)
        add(f"{index}/attention_output", block.attention_output, dense)
        add(f"{index}/attention_norm", block.attention_layer_norm, norm)
        add(f"{index}/wide", block.intermediate, dense)
        add(f"{index}/narrow", block.output_dense, dense)
        add(f"{index}/output_norm", block.output_layer_norm, norm)
    add("pooler", model.backbone.pooler.dense, dense)
    add("transform", model.masked_lm_head.transform, dense)
    add("transform/norm", model.masked_lm_head.layer_norm, norm)
    variables["vocabulary/bias"] = model.masked_lm_head.output_bias
    add("next_sentence", model.next_sentence, dense)
    return variables


class NumpyPretrainer:
    """Loss and gradient; `parameters` is a dictionary of float64 arrays, changed by nobody here."""

    def __init__(self, parameters, num_layers, num_heads):
        self.parameters = parameters
        self.num_layers = num_layers
        self.num_heads = num_heads

    def loss_and_gradients(self, features, labels):
        """The loss of a batch and the dictionary of its gradients."""
        p = self.parameters
        gradients = {name: np.zeros_like(value) for name, value in p.items()}
        ids, segments = features["token_ids"], features["segment_ids"]
        mask, places = features["padding_mask"], features["masked_positions"]
        batch, length = ids.shape
        x = p["word"][ids] + p["position"][:length] + p["segment"][segments]
        back = []
        x = self._norm(x, "embeddings/norm", gradients, back)
        for index in range(self.num_layers):
            x = self._block(x, mask, index, gradients, back)

        every = np.arange(batch)
        pooled, pooler_back = self._dense(x[:, 0], "pooler", gradients)
        pooled = np.tanh(pooled)
        sentence_logits, sentence_back = self._dense(pooled, "next_sentence", gradients)
        sentence_loss, d_sentence = cross_entropy(
            sentence_logits, labels["next_sentence_labels"], np.full(batch, 1.0 / batch)
        )

        rows = x[every[:, None], places].reshape(-1, x.shape[-1])
        transformed, transform_back = self._dense(rows, "transform", gradients)
        active, slope = gelu(transformed)
        norm_back = []
        normal = self._norm(active, "transform/norm", gradients, norm_back)
        logits = normal @ p["word"].T + p["vocabulary/bias"]
        weights = labels["masked_weights"].reshape(-1).astype(np.float64)
        masked_loss, d_logits = cross_entropy(
            logits, labels["masked_ids"].reshape(-1), weights / (weights.sum() + 1e-5)
        )

        gradients["vocabulary/bias"] += d_logits.sum(axis=0)
        gradients["word"] += d_logits.T @ normal
        d_rows = transform_back(norm_back[0](d_logits @ p["word"]) * slope)
        dx = np.zeros_like(x)
        np.add.at(dx, (every[:, None], places), d_rows.reshape(*places.shape, -1))
        dx[:, 0] += pooler_back(sentence_back(d_sentence) * (1 - pooled**2))
        for step in reversed(back):
            dx = step(dx)
        np.add.at(gradients["word"], ids, dx)
        gradients["position"][:length] += dx.sum(axis=0)
        np.add.at(gradients["segment"], segments, dx)
        return masked_loss + sentence_loss, gradients

    def _block(self, x, mask, index, gradients, back):
        batch, length, hidden = x.shape
        heads, size = self.num_heads, hidden // self.num_heads
        qkv, qkv_back = self._dense(x, f"{index}/qkv", gradients)
        q, k, v = qkv.reshape(batch, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
        scores = np.where(mask[:, None, None], q @ k.swapaxes(2, 3) / np.sqrt(size), -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        attended, output_back = self._dense(context, f"{index}/attention_output", gradients)

        def attention_back(dy):
            """Through the sublayer and around it."""
            d_context = output_back(dy).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
            d_weights = d_context @ v.swapaxes(2, 3)
            d_scores = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
            d_scores /= np.sqrt(size)
            parts = (d_scores @ k, d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_context)
            d_qkv = np.stack(parts).transpose(1, 3, 0, 2, 4).reshape(batch, length, 3 * hidden)
            return dy + qkv_back(d_qkv)

        back.append(attention_back)
        x = self._norm(x + attended, f"{index}/attention_norm", gradients, back)
        wide, wide_back = self._dense(x, f"{index}/wide", gradients)
        active, slope = gelu(wide)
        narrow, narrow_back = self._dense(active, f"{index}/narrow", gradients)
        back.append(lambda dy: dy + wide_back(narrow_back(dy) * slope))
        return self._norm(x + narrow, f"{index}/output_norm", gradients, back)

    def _dense(self, x, name, gradients):
        kernel = self.parameters[f"{name}/kernel"]

        def back(dy):
            flat = dy.reshape(-1, dy.shape[-1])
            gradients[f"{name}/kernel"] += x.reshape(-1, x.shape[-1]).T @ flat
            gradients[f"{name}/bias"] += flat.sum(axis=0)
            return dy @ kernel.T

        return x @ kernel + self.parameters[f"{name}/bias"], back

    def _norm(self, x, name, gradients, back):
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
        normal = centred * scale
        gamma = self.parameters[f"{name}/gamma"]

        def step(dy):
            axes = tuple(range(dy.ndim - 1))
            gradients[f"{name}/gamma"] += (dy * normal).sum(axis=axes)
            gradients[f"{name}/beta"] += dy.sum(axis=axes)
            d = dy * gamma
            mean = d.mean(axis=-1, keepdims=True)
            return scale * (d - mean - normal * (d * normal).mean(axis=-1, keepdims=True))

        back.append(step)
        return normal * gamma + self.parameters[f"{name}/beta"]


def gelu(x):
    """The erf form and its slope."""
    cumulative = 0.5 * (1 + erf(x / np.sqrt(2)))
    return x * cumulative, cumulative + x * np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)


def cross_entropy(logits, labels, weights):
    """Σ weights · loss and its gradient."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -(np.log(probabilities[rows, labels]) * weights).sum()
    d_logits = probabilities * weights[:, None]
    d_logits[rows, labels] -= weights
    return loss, d_logits


class NumpyAdam:
    """google-research/bert's optimizer: clip by the global norm, no bias correction."""

    def __init__(self):
        self.state = {}

    def apply(self, parameters, gradients, rate):
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        scale = min(1.0, 1.0 / norm)
        for name, gradient in gradients.items():
            gradient = gradient * scale
            m, v = self.state.get(name, (0.0, 0.0))
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            self.state[name] = m, v
            update = m / (np.sqrt(v) + 1e-6)
            if not name.endswith(("gamma", "beta", "bias")):
                update = update + 0.01 * parameters[name]
            parameters[name] = parameters[name] - rate * update
