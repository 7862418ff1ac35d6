"""The peer PyTorch in eager mode: transformers' BERT with scaled dot product attention."""

import functools
import os

import numpy as np
import torch
import transformers

from . import base, hf_sentence
from .base import LEARNING_RATE, Peer, Task, matmul_inputs

# The pipelines of the methods of `calls`, and their arguments.
_PIPELINES = {
    "classify": ("text-classification", {}),
    "tag": ("token-classification", {"aggregation_strategy": "simple"}),
}
_LONGEST_ANSWER = 30
_BATCH_SIZE = 32  # the default of sentence-transformers
_NOT_DECAYED = ("bias", "LayerNorm.weight")


class Pretraining(torch.nn.Module):
    """The loss of pre-training; the matmul with the vocabulary computes only the masked rows."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, feed):
        outputs = self.model.bert(**feed["inputs"])
        rows = outputs[0].flatten(0, 1)[feed["rows"]]  # [B, T, H] -> [rows, H]
        logits = self.model.cls.predictions(rows)
        masked = torch.nn.functional.cross_entropy(logits, feed["masked_ids"], reduction="sum")
        next_logits = self.model.cls.seq_relationship(outputs[1])
        following = torch.nn.functional.cross_entropy(
            next_logits, feed["next_sentence_labels"], reduction="sum"
        )
        return masked / feed["weight_total"] + following / feed["batch_total"]


class PyTorch(Peer):
    """PyTorch in eager mode."""

    version = f"{torch.__version__}, transformers {transformers.__version__}"
    VARIANTS = {
        "inference_bfloat16": ("autocast", "bfloat16"),
        "training_bfloat16": ("autocast",),
        "matmul": ("linear", "mkl packed"),
        "generation_bfloat16": ("autocast", "bfloat16"),
    }

    def __init__(self, setup):
        super().__init__(setup)
        torch.set_num_threads(setup.threads)
        torch.set_num_interop_threads(1)
        torch.manual_seed(0)
        transformers.utils.logging.set_verbosity_error()

    @functools.cache
    def _backbone(self, dtype=torch.float32):
        directory = self.setup.model_directory
        return transformers.AutoModel.from_pretrained(directory, dtype=dtype).eval()

    def inference(self, batches, variant):
        model = torch.no_grad()(self._inference_model(variant))
        if "autocast" in variant:
            model = torch.autocast("cpu", torch.bfloat16)(model)
        feeds = [inputs(batch, self.setup.has_segments) for batch in batches]
        return base.inference_task(lambda feed: model(**feed), feeds)

    inference_bfloat16 = inference

    def inference_float64(self, batches, variant):
        """Creates a task whose states are those of float64, which other engines round."""
        model = torch.no_grad()(self._backbone(torch.float64))
        feeds = [inputs(batch, self.setup.has_segments) for batch in batches]

        def outputs():
            states = enumerate(model(**feed)[0].numpy() for feed in feeds)
            return {f"{index}/sequence_output": value for index, value in states}

        return base.Task(outputs, outputs)

    def _inference_model(self, variant):
        backbone = self._backbone(torch.bfloat16 if "bfloat16" in variant else torch.float32)

        def model(**feed):
            sequence_output, pooled_output = two_outputs(self.setup, backbone(**feed))
            return sequence_output.float(), pooled_output.float()  # NumPy has no bfloat16

        return model

    def matmul(self, shape, variant):
        """Creates a task for "linear", or for "mkl packed", as torch.compile with freezing does."""
        x, kernel = matmul_inputs(shape)
        x, weight = torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(kernel.T))
        bias, rows = torch.zeros(shape[2]), shape[0]
        if variant == "linear":
            multiply = functools.partial(torch.nn.functional.linear, x, weight, bias)
        else:
            packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
            multiply = functools.partial(torch.ops.mkl._mkl_linear, x, packed, weight, bias, rows)
        return base.matmul_task(torch.inference_mode()(multiply))

    def matmul_bfloat16(self, shape, variant):
        x, kernel = (torch.from_numpy(matrix).bfloat16() for matrix in matmul_inputs(shape))
        weight, bias = kernel.T.contiguous(), torch.zeros(shape[2], dtype=torch.bfloat16)
        multiply = functools.partial(torch.nn.functional.linear, x, weight, bias)
        return base.matmul_task(lambda: torch.inference_mode()(multiply)().float())

    @functools.cache
    def _generator(self, dtype):
        return transformers.EncoderDecoderModel.from_pretrained(
            self.setup.model_directory, dtype=dtype
        ).eval()

    def generation(self, batch, new_tokens, num_beams, variant):
        dtype = torch.bfloat16 if variant == "bfloat16" else torch.float32
        model, feed = self._generator(dtype), inputs(batch)
        options = dict(max_new_tokens=new_tokens, min_new_tokens=new_tokens, num_beams=num_beams)

        def generate():
            with torch.autocast("cpu", torch.bfloat16, enabled=variant == "autocast"):
                ids = model.generate(**feed, **options, do_sample=False)
            return ids[:, 1:].numpy()  # without the start token

        return base.generation_task(generate)

    generation_bfloat16 = generation

    def latency(self, text, variant):
        def model(feed):
            feed = {name: torch.from_numpy(value) for name, value in feed.items()}
            del feed["attention_mask"]  # there is no padding; faster without a mask
            with torch.inference_mode():
                return self._backbone()(**feed)[0].numpy()

        return hf_sentence.sentence_task(self.setup.model_directory, model, text)

    def calls(self, directory, method, texts, variant):
        """Creates a task with a pipeline, or with the usual way to a sentence vector."""
        path = os.path.join(directory, method)
        if method in ("encode", "answer"):
            return base.calls_task(getattr(self, f"_{method}")(path), texts)
        kind, options = _PIPELINES[method]
        pipeline = transformers.pipeline(kind, path, **options)

        def call(texts):
            found = pipeline(texts)
            if method == "tag":
                return {"starts": [span["start"] for span in found]}
            return {"probability": found[0]["score"]}

        return base.calls_task(call, texts)

    def _answer(self, path):
        """Returns a question and a context to the best span, as transformers' pipeline did."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(path).eval()

        @torch.inference_mode()
        def answer(texts):
            options = {"return_offsets_mapping": True, "truncation": "only_second"}
            feed = tokenizer(*texts, **options, return_tensors="pt")
            places, is_context = feed.pop("offset_mapping")[0], feed["token_type_ids"][0].bool()
            is_context = is_context & (places[:, 1] > 0)  # without [SEP]
            outputs = model(**feed)
            start, end = (
                torch.where(is_context, logits[0], -torch.inf)
                for logits in (outputs.start_logits, outputs.end_logits)
            )
            scores = start[:, None] + end  # [T, T]
            allowed = torch.ones_like(scores).triu().tril(_LONGEST_ANSWER - 1).bool()
            best = torch.where(allowed, scores, -torch.inf).argmax()
            first, last = divmod(best.item(), len(places))
            return {"start": places[first, 0].item(), "end": places[last, 1].item()}

        return answer

    def _encode(self, path):
        """Returns texts to mean vectors of length 1, in batches of 32, the longest texts first."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        model = transformers.AutoModel.from_pretrained(path, attn_implementation="sdpa").eval()

        @torch.inference_mode()
        def encode(texts):
            order = np.argsort([-len(text) for text in texts])
            vectors = []
            for numbers in np.split(order, range(_BATCH_SIZE, len(order), _BATCH_SIZE)):
                batch = [texts[number] for number in numbers]
                feed = tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
                mask = feed["attention_mask"].unsqueeze(-1)
                sums = (model(**feed)[0] * mask).sum(1)  # [B, T, H] -> [B, H]
                vectors.append(torch.nn.functional.normalize(sums / mask.sum(1)))
            return {"vectors": torch.cat(vectors).numpy()[np.argsort(order)]}

        return encode

    @functools.cached_property
    def pretrainer(self):
        config = transformers.BertConfig.from_pretrained(self.setup.model_directory)
        config._attn_implementation = "sdpa"
        model = transformers.BertForPreTraining(config)
        state = {f"bert.{name}": value for name, value in self.setup.encoder_tensors.items()}
        state |= self.setup.head_tensors
        # The decoder shares the weights of the embeddings and the bias cls.predictions.bias.
        state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]
        state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"]
        model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        model.tie_weights()
        return Pretraining(model).train()

    @functools.cached_property
    def optimizer(self):
        decayed, others = [], []
        for name, parameter in self.pretrainer.named_parameters():
            (others if name.endswith(_NOT_DECAYED) else decayed).append(parameter)
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
            lr=LEARNING_RATE,
            eps=1e-6,
            fused=True,
        )

    def training(self, batches, variant):
        """Creates a task with one optimizer step on the summed gradients of all batches."""
        module, compute_loss = self.pretrainer, self._training_loss(variant)
        feeds = [training_feed(batch) for batch in batches]
        if "autocast" in variant:
            compute_loss = torch.autocast("cpu", torch.bfloat16)(compute_loss)

        def run():
            self.optimizer.zero_grad(set_to_none=True)
            total = 0.0
            for feed in feeds:
                loss = compute_loss(feed)
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            self.optimizer.step()
            return total

        def outputs():
            module.eval()
            try:
                with torch.no_grad():
                    return {"loss": np.sum([compute_loss(feed).item() for feed in feeds])}
            finally:
                module.train()

        return Task(run, outputs)

    training_bfloat16 = training

    def _training_loss(self, variant):
        return self.pretrainer


def two_outputs(setup, outputs):
    """Returns the states and the pooled output of a model."""
    return outputs[0], outputs[1] if setup.has_pooler else outputs[0][:, 0]


def inputs(batch, has_segments=True):
    """Returns a batch with transformers' names, and without a mask if there is no padding."""
    feed = {"input_ids": torch.from_numpy(batch["token_ids"]).long()}
    if has_segments:
        feed["token_type_ids"] = torch.from_numpy(batch["segment_ids"]).long()
    if not batch["padding_mask"].all():
        feed["attention_mask"] = torch.from_numpy(batch["padding_mask"]).long()
    return feed


def training_feed(batch):
    """Returns a batch for training, with the masked positions as flat indices of `[B * T]`."""
    length = batch["token_ids"].shape[1]
    flat = batch["masked_positions"] + length * np.arange(len(batch["token_ids"]))[:, np.newaxis]
    used = batch["masked_weights"] > 0
    return {
        "inputs": inputs(batch),
        "rows": torch.from_numpy(flat[used]).long(),
        "masked_ids": torch.from_numpy(batch["masked_ids"][used]).long(),
        "next_sentence_labels": torch.from_numpy(batch["next_sentence_labels"]).long(),
        "weight_total": float(batch["weight_total"]),
        "batch_total": float(batch["batch_total"]),
    }
