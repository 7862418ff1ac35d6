// The GPU kernels as plain C functions: pointers into the GPU's memory, sizes, a stream. They queue
// work and return at once: 0, or the cudaError_t of the launch. The formulas, and what may be null
// or in place, stand in fused_bias_gelu.h, fused_residual_layer_norm.h and varlen_attention.h.
//
// Sums over rows run in an order that follows from the sizes alone: no atomics, equal bits every
// time on GPUs of one architecture. `seed` points at the seed in the GPU's memory and is read only
// where dropout_rate > 0; the masks are the CPU's.
//
// What is not finite: in varlen_attention a non-finite value reaches rows that do not see it where
// they share a tile of 64 keys with rows that do (0 times it is NaN); the CPU kernel keeps it away.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_CUDA_LAUNCHERS_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_CUDA_LAUNCHERS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The element type of the tensors behind void pointers.
enum BertTfCudaType { kBertTfFloat32 = 0, kBertTfBFloat16 = 1, kBertTfFloat16 = 2 };

int BertTfCudaBiasGelu(int type, const void* x, const void* bias, int64_t rows, int64_t columns,
                       int approximate, void* y, void* stream);

// Floats of scratch that the gradient wants, or kTooLarge (sizes.h); likewise below.
int64_t BertTfCudaBiasGeluGradScratch(int64_t rows, int64_t columns);
int BertTfCudaBiasGeluGrad(int type, const void* dy, const void* x, const void* bias, int64_t rows,
                           int64_t columns, int approximate, void* dx, void* dbias, float* scratch,
                           void* stream);

int BertTfCudaResidualLayerNorm(int type, const void* x, const void* residual, const void* bias,
                                const void* gamma, const void* beta, int64_t rows, int64_t columns,
                                float epsilon, float dropout_rate, const int64_t* seed, void* y,
                                float* mean, float* rstd, void* stream);

int64_t BertTfCudaResidualLayerNormGradScratch(int64_t rows, int64_t columns);
int BertTfCudaResidualLayerNormGrad(int type, const void* dy, const void* x, const void* residual,
                                    const void* bias, const void* gamma, const float* mean,
                                    const float* rstd, int64_t rows, int64_t columns,
                                    float dropout_rate, const int64_t* seed, void* dx,
                                    void* dresidual, void* dbias, void* dgamma, void* dbeta,
                                    float* scratch, void* stream);

enum { kBertTfLargestHead = 64 };  // what the kernels hold in registers

// head_size is at most kBertTfLargestHead. row_splits lie in the GPU's memory and cannot be checked
// before the launch: wrong ones give wrong numbers, but nothing outside the tensors is read or
// written.
int BertTfCudaVarlenAttention(int type, const void* qkv, const void* row_splits,
                              int row_splits_are_int64, int64_t num_sequences, int64_t rows,
                              int64_t num_heads, int64_t head_size, int causal, int64_t window_size,
                              int64_t num_global_tokens, float dropout_rate, const int64_t* seed,
                              void* output, float* logsumexp, void* stream);

int64_t BertTfCudaVarlenAttentionGradScratch(int64_t rows, int64_t num_heads);
int BertTfCudaVarlenAttentionGrad(int type, const void* d_output, const void* qkv,
                                  const void* output, const float* logsumexp,
                                  const void* row_splits, int row_splits_are_int64,
                                  int64_t num_sequences, int64_t rows, int64_t num_heads,
                                  int64_t head_size, int causal, int64_t window_size,
                                  int64_t num_global_tokens, float dropout_rate,
                                  const int64_t* seed, void* d_qkv, float* scratch, void* stream);

#ifdef __cplusplus
}
#endif

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_CUDA_LAUNCHERS_H_
