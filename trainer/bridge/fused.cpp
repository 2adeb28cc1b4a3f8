// The loops of kernels.h as operations of torch's autograd, behind a C interface.
//
// In: at::Tensor pointers (what tch holds), f32 on the CPU. Out: 0 and the result in `*out`, a new at::Tensor that the caller
// owns; or 1 with a message in `text`. Always holds: no exception crosses; results do not depend on the number of threads.
// The other side is trainer/src/model/fused.rs, which keeps the declarations.

#include "kernels.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <torch/csrc/autograd/custom_function.h>

#include "guarded.h"

namespace {

using at::Tensor;
using hds::guarded;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Those for this processor, or for less where ATEN_CPU_CAPABILITY, which torch heeds too, is `avx2` or `default`.
const hds::Kernels& kernels() {
  static const hds::Kernels* chosen = [] {
#if defined(HDS_X86)
    const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string most = variable == nullptr ? "" : variable;
    if (most != "default") {
      if (most != "avx2" && __builtin_cpu_supports("avx512f")) return hds_kernels_avx512();
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return hds_kernels_avx2();
    }
#endif
    return hds_kernels_baseline();
  }();
  return *chosen;
}

// Calls `body` with 0 .. items on torch's threads, whose loop an iterator over a tensor of as many elements gives us.
template <typename Body>
void each(int64_t items, Body body) {
  Tensor index = at::arange(items, at::kLong);
  at::TensorIterator iterator = at::TensorIterator::nullary_op(index);
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t count) {
        for (int64_t i = 0; i < count; i++) body(*reinterpret_cast<int64_t*>(data[0] + i * strides[0]));
      },
      1);
}

// Memory of a thread that is kept for the next call.
float* scratch(size_t size) {
  thread_local std::vector<float> kept;
  if (kept.size() < size) kept.resize(size);
  return kept.data();
}

void check(const Tensor& tensor, at::IntArrayRef shape, const char* name) {
  TORCH_CHECK(tensor.defined() && tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                  tensor.sizes() == shape,
              name, " must be f32 on the CPU, contiguous, of shape ", shape);
}

// ---- Attention ------------------------------------------------------------------------------------------------------

struct Heads {
  int64_t batch, length, heads, size, half;
  const float *qkv, *bias, *cosines, *sines;

  hds::Head at(int64_t b, int64_t h) const {
    return {length,
            size,
            half,
            qkv + b * length * heads * 3 * size + h * 3 * size,
            heads * 3 * size,
            bias + h * 3 * size,
            cosines,
            sines};
  }
};

// Causal attention of [B L, A 3 D] products, before their bias [A 3 D], at positions whose rotations are [L, half].
struct Attention : torch::autograd::Function<Attention> {
  static Heads heads_of(const Tensor& qkv, const Tensor& bias, const Tensor& cosines, const Tensor& sines, int64_t length,
                        int64_t heads) {
    TORCH_CHECK(qkv.dim() == 2 && length > 0 && heads > 0 && qkv.size(0) % length == 0 && qkv.size(1) % (3 * heads) == 0,
                "queries, keys and values must be [B L, A 3 D]");
    const int64_t size = qkv.size(1) / (3 * heads), half = cosines.dim() == 2 ? cosines.size(1) : 0;
    TORCH_CHECK(size % hds::LANES == 0 && 2 * half <= size, "no heads of ", size, " with ", 2 * half, " rotated");
    check(qkv, qkv.sizes(), "queries, keys and values");
    check(bias, {3 * heads * size}, "bias");
    check(cosines, {length, half}, "cosines");
    check(sines, {length, half}, "sines");
    return {qkv.size(0) / length,        length, heads, size, half, qkv.const_data_ptr<float>(),
            bias.const_data_ptr<float>(), cosines.const_data_ptr<float>(), sines.const_data_ptr<float>()};
  }

  static Tensor forward(AutogradContext* context, const Tensor& qkv, const Tensor& bias, const Tensor& cosines,
                        const Tensor& sines, int64_t length, int64_t heads) {
    const Heads all = heads_of(qkv, bias, cosines, sines, length, heads);
    Tensor out = at::empty({qkv.size(0), heads * all.size}, qkv.options());
    Tensor lse = at::empty({all.batch * heads, length}, qkv.options());
    float *out_data = out.data_ptr<float>(), *lse_data = lse.data_ptr<float>();
    const int64_t stride = heads * all.size;
    each(all.batch * heads, [&](int64_t item) {
      const int64_t b = item / heads, h = item % heads;
      kernels().attention_forward(all.at(b, h), out_data + b * length * stride + h * all.size, stride,
                                  lse_data + item * length, scratch(hds::forward_scratch(length, all.size)));
    });
    context->save_for_backward({qkv, bias, cosines, sines, out, lse});
    context->saved_data["length"] = length;
    context->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t length = context->saved_data["length"].toInt(), heads = context->saved_data["heads"].toInt();
    const Heads all = heads_of(saved[0], saved[1], saved[2], saved[3], length, heads);
    const Tensor out_gradient = gradients[0].contiguous();
    Tensor qkv_gradient = at::empty_like(saved[0]);
    Tensor bias_gradients = at::empty({all.batch, saved[1].size(0)}, saved[1].options());
    const float *out_data = saved[4].const_data_ptr<float>(), *lse_data = saved[5].const_data_ptr<float>();
    const float* given = out_gradient.const_data_ptr<float>();
    float *qkv_data = qkv_gradient.data_ptr<float>(), *bias_data = bias_gradients.data_ptr<float>();
    const int64_t stride = heads * all.size;
    each(all.batch * heads, [&](int64_t item) {
      const int64_t b = item / heads, h = item % heads;
      const int64_t rows = b * length * stride + h * all.size;
      kernels().attention_backward(all.at(b, h), out_data + rows, given + rows, stride, lse_data + item * length,
                                   qkv_data + b * length * 3 * stride + h * 3 * all.size, bias_data + item * 3 * all.size,
                                   scratch(hds::backward_scratch(length, all.size)));
    });
    return {qkv_gradient, bias_gradients.sum(0), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// ---- GELU -----------------------------------------------------------------------------------------------------------

// Rows that one thread takes at a time.
constexpr int64_t ROWS = 64;

// gelu(in + bias), exact; in [N, F], bias [F].
struct Gelu : torch::autograd::Function<Gelu> {
  static Tensor forward(AutogradContext* context, const Tensor& in, const Tensor& bias) {
    TORCH_CHECK(in.dim() == 2 && in.size(1) % hds::LANES == 0, "gelu takes [N, F], F a multiple of ", hds::LANES);
    check(in, in.sizes(), "in");
    check(bias, {in.size(1)}, "bias");
    Tensor out = at::empty_like(in);
    const int64_t rows = in.size(0), width = in.size(1);
    const float *from = in.const_data_ptr<float>(), *shift = bias.const_data_ptr<float>();
    float* to = out.data_ptr<float>();
    each((rows + ROWS - 1) / ROWS, [&](int64_t item) {
      const int64_t start = item * ROWS, count = std::min(ROWS, rows - start);
      kernels().gelu_forward(count, width, from + start * width, shift, to + start * width);
    });
    context->save_for_backward({in, bias});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &in = saved[0], &bias = saved[1];
    const Tensor gradient = gradients[0].contiguous();
    const int64_t rows = in.size(0), width = in.size(1), parts = (rows + ROWS - 1) / ROWS;
    Tensor in_gradient = at::empty_like(in), bias_gradients = at::empty({parts, width}, bias.options());
    const float *given = gradient.const_data_ptr<float>(), *from = in.const_data_ptr<float>();
    const float* shift = bias.const_data_ptr<float>();
    float *to = in_gradient.data_ptr<float>(), *sums = bias_gradients.data_ptr<float>();
    each(parts, [&](int64_t item) {
      const int64_t start = item * ROWS, count = std::min(ROWS, rows - start);
      kernels().gelu_backward(count, width, given + start * width, from + start * width, shift, to + start * width,
                              sums + item * width);
    });
    return {in_gradient, bias_gradients.sum(0)};
  }
};

// ---- Layer norms ----------------------------------------------------------------------------------------------------

// One or two layer norms of the same rows [N, H]; of one, the second gain and bias are not used.
struct LayerNorms : torch::autograd::Function<LayerNorms> {
  static hds::Norms norms_of(const Tensor& in, const variable_list& gains, const variable_list& biases, int64_t count,
                             double epsilon) {
    TORCH_CHECK(in.dim() == 2 && in.size(1) % hds::LANES == 0, "norms take [N, H], H a multiple of ", hds::LANES);
    check(in, in.sizes(), "in");
    hds::Norms norms{static_cast<int>(count), in.size(1), static_cast<float>(epsilon), {}, {}};
    for (int n = 0; n < norms.count; n++) {
      check(gains[n], {in.size(1)}, "gain");
      check(biases[n], {in.size(1)}, "bias");
      norms.gains[n] = gains[n].const_data_ptr<float>();
      norms.biases[n] = biases[n].const_data_ptr<float>();
    }
    return norms;
  }

  static variable_list forward(AutogradContext* context, const Tensor& in, const Tensor& gain, const Tensor& bias,
                               const Tensor& second_gain, const Tensor& second_bias, int64_t count, double epsilon) {
    const hds::Norms norms = norms_of(in, {gain, second_gain}, {bias, second_bias}, count, epsilon);
    const int64_t rows = in.size(0);
    variable_list outs;
    for (int n = 0; n < norms.count; n++) outs.push_back(at::empty_like(in));
    Tensor statistics = at::empty({rows, 2}, in.options());
    float* to[2] = {outs.front().data_ptr<float>(), outs.back().data_ptr<float>()};
    const float* from = in.const_data_ptr<float>();
    float* numbers = statistics.data_ptr<float>();
    each((rows + ROWS - 1) / ROWS, [&](int64_t item) {
      const int64_t start = item * ROWS, count = std::min(ROWS, rows - start), skipped = start * norms.width;
      float* const parts[2] = {to[0] + skipped, to[1] + skipped};
      kernels().norms_forward(norms, count, from + skipped, parts, numbers + 2 * start);
    });
    context->save_for_backward({in, gain, bias, second_gain, second_bias, statistics});
    context->saved_data["count"] = count;
    context->saved_data["epsilon"] = epsilon;
    return outs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& in = saved[0];
    const hds::Norms norms = norms_of(in, {saved[1], saved[3]}, {saved[2], saved[4]}, context->saved_data["count"].toInt(),
                                      context->saved_data["epsilon"].toDouble());
    const int64_t rows = in.size(0), items = (rows + ROWS - 1) / ROWS, width = norms.width;
    for (Tensor& gradient : gradients) gradient = gradient.contiguous();
    const float* given[2] = {gradients.front().const_data_ptr<float>(), gradients.back().const_data_ptr<float>()};
    Tensor in_gradient = at::empty_like(in), parts = at::empty({items, 2 * norms.count, width}, in.options());
    const float *from = in.const_data_ptr<float>(), *numbers = saved[5].const_data_ptr<float>();
    float *to = in_gradient.data_ptr<float>(), *sums = parts.data_ptr<float>();
    each(items, [&](int64_t item) {
      const int64_t start = item * ROWS, count = std::min(ROWS, rows - start), skipped = start * width;
      const float* const of[2] = {given[0] + skipped, given[1] + skipped};
      kernels().norms_backward(norms, count, from + skipped, of, numbers + 2 * start, to + skipped,
                               sums + item * 2 * norms.count * width);
    });
    const Tensor totals = parts.sum(0);
    const auto total = [&](int64_t i) { return i < 2 * norms.count ? totals.select(0, i) : Tensor(); };
    return {in_gradient, total(0), total(1), total(2), total(3), Tensor(), Tensor()};
  }
};

Tensor& tensor(void* pointer) {
  return *static_cast<Tensor*>(pointer);
}

}  // namespace

extern "C" {

// Attention::forward; qkv [B L, A 3 D], bias [A 3 D], cosines and sines [L, half].
int hds_fused_attention(void* qkv, void* bias, void* cosines, void* sines, int64_t length, int64_t heads, void** out,
                        char* text, size_t size) {
  return guarded({text, size}, [&] {
    *out = new Tensor(Attention::apply(tensor(qkv), tensor(bias), tensor(cosines), tensor(sines), length, heads));
  });
}

// gelu(in + bias); in [N, F], bias [F].
int hds_fused_gelu(void* in, void* bias, void** out, char* text, size_t size) {
  return guarded({text, size}, [&] { *out = new Tensor(Gelu::apply(tensor(in), tensor(bias))); });
}

// One layer norm of `in` [N, H] into `out`, or, where there is a second gain, two into `out` and `second_out`.
int hds_fused_norms(void* in, void* gain, void* bias, void* second_gain, void* second_bias, double epsilon, void** out,
                    void** second_out, char* text, size_t size) {
  return guarded({text, size}, [&] {
    const bool two = second_gain != nullptr;
    variable_list outs = LayerNorms::apply(tensor(in), tensor(gain), tensor(bias), tensor(two ? second_gain : gain),
                                           tensor(two ? second_bias : bias), int64_t{two ? 2 : 1}, epsilon);
    *out = new Tensor(outs.front());
    if (outs.size() > 1) *second_out = new Tensor(outs.back());
  });
}

// Logits [C, V] become the gradient, times `factors` [C], of the losses [C] at `targets` [C] i64.
int hds_fused_cross_entropy(void* logits, void* targets, void* factors, void* losses, char* text, size_t size) {
  return guarded({text, size}, [&] {
    Tensor &values = tensor(logits), &to = tensor(losses);
    const Tensor &chosen = tensor(targets), &scales = tensor(factors);
    check(values, values.sizes(), "logits");
    const int64_t rows = values.size(0), width = values.size(1);
    check(scales, {rows}, "factors");
    check(to, {rows}, "losses");
    TORCH_CHECK(chosen.device().is_cpu() && chosen.scalar_type() == at::kLong && chosen.is_contiguous() &&
                    chosen.numel() == rows,
                "targets must be i64 on the CPU, one a row");
    float *data = values.data_ptr<float>(), *results = to.data_ptr<float>();
    const int64_t* targets_data = chosen.const_data_ptr<int64_t>();
    const float* scales_data = scales.const_data_ptr<float>();
    for (int64_t r = 0; r < rows; r++)
      TORCH_CHECK(targets_data[r] >= 0 && targets_data[r] < width, "target ", targets_data[r], " is not below ", width);
    constexpr int64_t AT_ONCE = 8;
    each((rows + AT_ONCE - 1) / AT_ONCE, [&](int64_t item) {
      const int64_t start = item * AT_ONCE;
      kernels().cross_entropy(std::min(AT_ONCE, rows - start), width, data + start * width, targets_data + start,
                              scales_data + start, results + start);
    });
  });
}

// One step of AdamW on flat tensors of the same length; see hds::AdamW for the numbers.
int hds_fused_adamw(void* weights, void* gradient, void* first, void* second, double gradient_factor, double decay,
                    double first_rate, double second_rate, double root_scale, double epsilon, int moves, char* text,
                    size_t size) {
  return guarded({text, size}, [&] {
    const int64_t count = tensor(weights).numel();
    for (void* each_one : {weights, gradient, first, second}) check(tensor(each_one), {count}, "what AdamW takes");
    const auto narrow = [](double value) { return static_cast<float>(value); };
    const hds::AdamW step{narrow(gradient_factor), narrow(first_rate), narrow(second_rate),
                          narrow(root_scale),      narrow(epsilon),    moves != 0};
    float *w = tensor(weights).data_ptr<float>(), *m = tensor(first).data_ptr<float>();
    float* v = tensor(second).data_ptr<float>();
    const float* g = tensor(gradient).const_data_ptr<float>();
    // So few that the second loop over them finds them in a cache.
    constexpr int64_t AT_ONCE = 1 << 13;
    each((count + AT_ONCE - 1) / AT_ONCE, [&](int64_t item) {
      const int64_t start = item * AT_ONCE;
      kernels().adamw(step, narrow(decay), std::min(AT_ONCE, count - start), w + start, g + start, m + start, v + start);
    });
  });
}

// Makes `gradient` that of the leaf `parameter`; none where it is null.
int hds_fused_set_gradient(void* parameter, void* gradient, char* text, size_t size) {
  return guarded({text, size}, [&] { tensor(parameter).mutable_grad() = gradient == nullptr ? Tensor() : tensor(gradient); });
}

// Lets freed memory stay with the process instead of going back to the system, which would clear it again page by page in every
// step; and asks for large pages. To be called before torch allocates anything. What the environment says goes first.
void hds_keep_memory() {
#if defined(__GLIBC__)
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr && std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 2147483647);
    mallopt(M_TOP_PAD, 64 << 20);
  }
#endif
  setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
}
}
