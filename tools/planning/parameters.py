"""The numbers of parameters of the parts of a `BertPretrainer`.

Glossary: V vocabulary, H hidden size, F feed-forward size, n·D heads of a block times their size.
"""

from bert_tf.config import BertConfig

from .training_run import TrainingRun


def word_table(config: BertConfig) -> int:
    """Returns V·H, the word embeddings, which the head shares."""
    return config.vocab_size * config.hidden_size


def embeddings(config: BertConfig) -> int:
    """Returns the parameters of the three tables and their LayerNorm."""
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return (rows + 2) * config.hidden_size


def block(config: BertConfig, index: int = 0) -> int:
    """Returns the parameters of encoder block `index`, without its pruned heads."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads = len(config.kept_heads(index)) * config.head_size  # n·D
    query_key_value = (hidden + 1) * 3 * heads
    attention_output = (heads + 1) * hidden
    feed_forward = (hidden + 1) * wide + (wide + 1) * hidden
    return query_key_value + attention_output + feed_forward + 2 * 2 * hidden


def pooler(config: BertConfig) -> int:
    return (config.hidden_size + 1) * config.hidden_size


def masked_lm_head(config: BertConfig) -> int:
    """Returns the parameters of the head, without the word embeddings."""
    hidden = config.hidden_size
    return (hidden + 1) * hidden + 2 * hidden + config.vocab_size


def next_sentence_head(config: BertConfig) -> int:
    return (config.hidden_size + 1) * 2


def backbone(config: BertConfig) -> int:
    """Returns the parameters of the `BertBackbone`."""
    blocks = sum(block(config, index) for index in range(config.num_hidden_layers))
    return embeddings(config) + blocks + pooler(config)


def heads(run: TrainingRun) -> int:
    """Returns the parameters after the last block that are trained."""
    count = masked_lm_head(run.config)
    if run.has_sentences:
        count += pooler(run.config) + next_sentence_head(run.config)
    return count


def frozen(run: TrainingRun) -> int:
    """Returns the parameters that nothing is learnt for: the pooler without sentences."""
    return 0 if run.has_sentences else pooler(run.config)
