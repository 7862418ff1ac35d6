// The GPU kernels as functions of an element type, the arguments of the CPU kernels with pointers
// into GPU memory, and a stream. They queue the work and return immediately: 0, or a status that
// BertTfCudaError explains. adam_weight_decay.h, fused_bias_gelu.h, fused_gate.h,
// fused_residual_layer_norm.h and varlen_attention.h describe the formulas, which arguments may be
// null, and which outputs may be computed in place. They have C names, with which
// benchmarks/cuda_kernels/launchers.py calls them.
//
// The order of sums over rows depends only on the sizes and on whether the tensors are aligned to
// 16 bytes. There are no atomics, so the results on GPUs of the same architecture have the same
// bits. `seed` points to the seed in GPU memory and is read only if dropout_rate > 0. The dropout
// masks are equal to those of the CPU.
//
// In varlen_attention, a non-finite value may affect rows from which the mask hides it, if they
// share a tile of 64 keys with rows that attend to it (0 times it is NaN). The CPU kernel prevents
// this.
#pragma once

#include <cstdint>
#include <string>

#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"

namespace bert_tf {

constexpr int64_t kLargestCudaHead = 64;  // the largest head that the kernels can hold in registers
constexpr int64_t kMostCudaRows = 1 << 30;  // positions in a sequence and distances have 32 bits

// The inputs of varlen_attention and of its gradient. row_splits is in GPU memory and cannot be
// checked before the launch. Invalid row splits give wrong results, but no memory outside of the
// tensors is read or written.
struct CudaAttentionInputs {
  const void* qkv = nullptr;
  const void* row_splits = nullptr;
  bool row_splits_are_int64 = false;  // otherwise int32
  int64_t num_sequences = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t head_size = 0;
  bool causal = false;
  int64_t window_size = -1;
  int64_t num_global_tokens = 0;
  float dropout_rate = 0.0f;
  const int64_t* seed = nullptr;
  const float* distance_bias = nullptr;  // [N, 2 M + 1], or null
  int64_t max_distance = 0;              // M
  // [P, S], P at least 1, or null. Tokens at places from P on are turned to NaN.
  const float* rotation = nullptr;
  int64_t rotation_places = 0;  // P
  int64_t rotation_size = 0;    // S
  int64_t max_length = 0;       // of a sequence, or 0 if it is not known
};

struct CudaAttentionArgs : CudaAttentionInputs {
  void* output = nullptr;
  float* logsumexp = nullptr;
};

struct CudaAttentionGradArgs : CudaAttentionInputs {
  const void* output = nullptr;
  const float* logsumexp = nullptr;
  const void* d_output = nullptr;
  void* d_qkv = nullptr;
  float* d_distance_bias = nullptr;
  float* scratch = nullptr;
};

#ifndef __CUDACC_RTC__
// Returns an error message for arguments that the kernels do not support. It is empty if they do.
inline std::string CheckCudaAttention(const CudaAttentionInputs& args) {
  if (args.head_size > kLargestCudaHead) {
    return "`qkv` must have a head size from 1 to " + std::to_string(kLargestCudaHead) +
           " on a GPU. Received: qkv.shape=[" + std::to_string(args.rows) + ",3," +
           std::to_string(args.num_heads) + "," + std::to_string(args.head_size) +
           "]. BERT_TF_OPS=reference supports any head size.";
  }
  if (args.rows > kMostCudaRows) {
    return "`qkv` must have at most " + std::to_string(kMostCudaRows) +
           " rows on a GPU. Received: " + std::to_string(args.rows) + ". Split the batch.";
  }
  if (args.num_sequences == 0 && args.rows > 0) {  // this check needs only shapes
    return "`row_splits` must end with the number of rows of `qkv`, " + std::to_string(args.rows) +
           ". Received: row_splits.shape=[1]";
  }
  // The lengths are not known, but one of them is at least their mean.
  if (args.rows > 0 && args.rotation_size > 0 &&
      (args.rows - 1) / args.num_sequences >= args.rotation_places) {
    return "`rotation` must have a row for each place of a sequence. Received: rotation.shape=[" +
           std::to_string(args.rotation_places) + "," + std::to_string(args.rotation_size) + "], " +
           std::to_string(args.rows) + " tokens in " + std::to_string(args.num_sequences) +
           " sequences. Make a longer table.";
  }
  return "";
}
#endif  // __CUDACC_RTC__

}  // namespace bert_tf

extern "C" {

// Returns why the last launcher of this thread failed: in words, or "" for arguments that the
// kernels do not support. The next call returns "".
const char* BertTfCudaError();

// The element type of the tensors that void pointers point to.
enum BertTfCudaType { kBertTfFloat32 = 0, kBertTfBFloat16 = 1, kBertTfFloat16 = 2 };

// BertTfCuda*GradScratch is the number of floats of scratch that a gradient needs, or kTooLarge
// (sizes.h).
int BertTfCudaBiasGelu(int type, const bert_tf::BiasGeluArgs<bert_tf::Gpu>& args, void* stream);
int BertTfCudaBiasGeluGrad(int type, const bert_tf::BiasGeluGradArgs<bert_tf::Gpu>& args,
                           void* stream);
int64_t BertTfCudaBiasGeluGradScratch(int64_t rows, int64_t columns);

int BertTfCudaGate(int type, const bert_tf::GateArgs<bert_tf::Gpu>& args, void* stream);

int BertTfCudaResidualLayerNorm(int type, const bert_tf::ResidualLayerNormArgs<bert_tf::Gpu>& args,
                                void* stream);
int BertTfCudaResidualLayerNormGrad(int type,
                                    const bert_tf::ResidualLayerNormGradArgs<bert_tf::Gpu>& args,
                                    void* stream);
int64_t BertTfCudaResidualLayerNormGradScratch(int64_t rows, int64_t columns);

int BertTfCudaVarlenAttention(int type, const bert_tf::CudaAttentionArgs& args, void* stream);
int BertTfCudaVarlenAttentionGrad(int type, const bert_tf::CudaAttentionGradArgs& args,
                                  void* stream);
// `distances` is 2 M + 1, or 0 without a distance bias.
int64_t BertTfCudaVarlenAttentionGradScratch(int64_t rows, int64_t num_heads, int64_t num_sequences,
                                             int64_t distances);

#ifndef __CUDACC_RTC__
// The tensors have their own types, so `type` is not used.
int BertTfCudaAdamWeightDecay(int type, const bert_tf::AdamWeightDecayArgs& args, void* stream);
int BertTfCudaGlobalNorm(int type, const bert_tf::GlobalNormArgs& args, void* stream);
#endif  // __CUDACC_RTC__

}  // extern "C"
