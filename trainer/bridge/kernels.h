// What a training step on a CPU does besides matrix products: plain loops over f32, no tensors and no threads.
//
// Compiled once for each kind of processor (kernels.cpp); fused.cpp chooses by what the machine has. Nothing here may include
// torch's headers: inline functions of theirs compiled for a newer processor could be linked into the rest of the program.

#pragma once

#include <cstdint>

namespace hds {

// Sizes must be multiples of this: head sizes, and widths of GELU's rows.
constexpr int64_t LANES = 16;

// One head of one sequence. Rows are tokens.
struct Head {
  int64_t length;         // L, tokens
  int64_t size;           // D, a multiple of LANES
  int64_t half;           // pairs of rotated dimensions: i and i + half, for i < half
  const float* qkv;       // [L] rows of query [D], key [D], value [D], before their bias
  int64_t qkv_stride;     // from row to row
  const float* bias;      // [3 D]
  const float* cosines;   // [L, half]
  const float* sines;     // [L, half]
};

// One or two layer norms of the same rows.
struct Norms {
  int count;  // 1 or 2
  int64_t width;
  float epsilon;
  const float* gains[2];
  const float* biases[2];
};

// What is the same for all weights in a step of AdamW.
struct AdamW {
  float gradient_factor;
  float first_rate;   // 1 - beta_1
  float second_rate;  // 1 - beta_2
  float root_scale;   // the weights move by first / (root_scale * sqrt(second) + epsilon): both carry -c_1 / learning rate
  float epsilon;
  bool moves;         // false where the learning rate is 0
};

struct Kernels {
  // Causal attention of rotated queries and keys, weights softmax(q k / sqrt(D)): `out` [L] rows of D at `out_stride`, `lse` [L] the base-2
  // logarithms of the softmax's sums. `scratch` of forward_scratch(L, D) floats.
  void (*attention_forward)(const Head& head, float* out, int64_t out_stride, float* lse, float* scratch);

  // The gradient of `qkv` (rows at its stride) and of `bias` from that of `out`. `scratch` of backward_scratch(L, D) floats.
  void (*attention_backward)(const Head& head, const float* out, const float* out_gradient, int64_t out_stride,
                             const float* lse, float* qkv_gradient, float* bias_gradient, float* scratch);

  // out = gelu(in + bias), the exact one; [rows, width].
  void (*gelu_forward)(int64_t rows, int64_t width, const float* in, const float* bias, float* out);

  // The gradient of `in` from that of `out`; `bias_gradient` [width] is its sum over the rows.
  void (*gelu_backward)(int64_t rows, int64_t width, const float* gradient, const float* in, const float* bias,
                        float* in_gradient, float* bias_gradient);

  // Layer norms of [rows, width] into `outs`; `statistics` [rows, 2] are each row's mean and 1 / deviation.
  void (*norms_forward)(const Norms& norms, int64_t rows, const float* in, float* const outs[2], float* statistics);

  // The gradient of `in` from those of the outs; `sums` [2 count, width] are the gradients of gain and bias, gain and bias.
  void (*norms_backward)(const Norms& norms, int64_t rows, const float* in, const float* const gradients[2],
                         const float* statistics, float* in_gradient, float* sums);

  // Logits [rows, width] become the gradient, times `factors` [rows], of -log softmax at each row's target, which goes to `losses`.
  void (*cross_entropy)(int64_t rows, int64_t width, float* logits, const int64_t* targets, const float* factors,
                        float* losses);

  // One step of AdamW for `count` weights that decay by the factor `decay`.
  void (*adamw)(const AdamW& step, float decay, int64_t count, float* weights, const float* gradient, float* first,
                float* second);
};

// Rows of a block; scratch is padded to whole blocks.
constexpr int64_t BLOCK = 32;

inline int64_t padded(int64_t length) {
  return (length + BLOCK - 1) / BLOCK * BLOCK;
}

inline int64_t forward_scratch(int64_t length, int64_t size) {
  return padded(length) * (3 * size + BLOCK) + BLOCK * size;
}

inline int64_t backward_scratch(int64_t length, int64_t size) {
  return padded(length) * (8 * size + 2) + 2 * BLOCK * BLOCK;
}

}  // namespace hds

extern "C" {
const hds::Kernels* hds_kernels_baseline();
const hds::Kernels* hds_kernels_avx2();
const hds::Kernels* hds_kernels_avx512();
}
