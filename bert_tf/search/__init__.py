"""What is done with vectors of texts: search, quantization, mining, clusters, an index on disk."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BM25Index": ".hybrid",
        "VectorIndex": ".vector_index",
        "community_detection": ".mining",
        "draw_clusters": ".cluster_picture",
        "fuse_rankings": ".hybrid",
        "max_sim_top_k": ".max_sim",
        "mine_hard_negatives": ".mining",
        "mined_examples": ".mining",
        "open_index_writer": ".index_files",
        "paraphrase_mining": ".mining",
        "quantize_vectors": ".quantized_vectors",
        "quantized_top_k": ".quantized_vectors",
        "search_recall": ".exact_search",
        "sparse_top_k": ".exact_search",
        "top_k": ".exact_search",
        "vector_ranges": ".quantized_vectors",
    },
)
