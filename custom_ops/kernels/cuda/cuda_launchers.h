// The GPU kernels as plain C functions of pointers into GPU memory, sizes and a stream. They queue
// the work and return immediately: 0, or the cudaError_t of the launch. fused_bias_gelu.h,
// fused_residual_layer_norm.h and varlen_attention.h describe the formulas, which arguments may be
// null, and which outputs may be computed in place.
//
// The order of sums over rows depends only on the sizes and on whether the tensors are aligned to
// 16 bytes. There are no atomics, so the results on GPUs of the same architecture have the same
// bits. `seed` points to the seed in GPU memory and is read only if dropout_rate > 0. The dropout
// masks are equal to those of the CPU.
//
// In varlen_attention, a non-finite value may affect rows from which the mask hides it, if they
// share a tile of 64 keys with rows that attend to it (0 times it is NaN). The CPU kernel prevents
// this.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_LAUNCHERS_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_LAUNCHERS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The element type of the tensors that void pointers point to.
enum BertTfCudaType { kBertTfFloat32 = 0, kBertTfBFloat16 = 1, kBertTfFloat16 = 2 };

int BertTfCudaBiasGelu(int type, const void* x, const void* bias, int64_t rows, int64_t columns,
                       int approximate, void* y, void* stream);

// The number of floats of scratch that the gradient needs, or kTooLarge (sizes.h). The same applies
// to the other functions of this kind.
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

enum { kBertTfLargestHead = 64 };  // the largest head that the kernels can hold in registers

// head_size is at most kBertTfLargestHead. row_splits is in GPU memory and cannot be checked before
// the launch. Invalid row splits give wrong results, but no memory outside of the tensors is read
// or written.
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

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_LAUNCHERS_H_
