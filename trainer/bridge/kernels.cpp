// The loops of kernels.h for one kind of processor: HDS_KERNELS names the function that gives them, the compiler's flags say
// which instructions there are.
//
// Always holds: a result is a function of the arguments alone, to the bit, for one kind of processor.

#include "kernels.h"

#include <cstring>

namespace {

using hds::BLOCK;
using hds::Head;

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
constexpr int ROWS = 8;
#elif defined(__AVX__)
constexpr int WIDTH = 8;
constexpr int ROWS = 4;
#else
constexpr int WIDTH = 4;
constexpr int ROWS = 4;
#endif

#define HDS_INLINE inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(WIDTH * 4)));
typedef int32_t Integers __attribute__((vector_size(WIDTH * 4)));
// In memory: anywhere a float may be.
typedef float Unaligned __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

HDS_INLINE Vector load(const float* from) {
  return *reinterpret_cast<const Unaligned*>(from);
}

HDS_INLINE void store(float* to, Vector values) {
  *reinterpret_cast<Unaligned*>(to) = values;
}

HDS_INLINE Vector all(float value) {
  return Vector{} + value;
}

HDS_INLINE Vector greater(Vector a, Vector b) {
  return a > b ? a : b;
}

HDS_INLINE float sum(Vector values) {
  float total = 0;
  for (int i = 0; i < WIDTH; i++) total += values[i];
  return total;
}

HDS_INLINE float greatest(Vector values) {
  float most = values[0];
  for (int i = 1; i < WIDTH; i++) most = most > values[i] ? most : values[i];
  return most;
}

// 2^x for x <= 127, within 1e-7 of itself; below 2^-126 that; what is no number stays none. The polynomial is fitted to 2^f on
// [-1/2, 1/2], error 2e-9.
HDS_INLINE Vector exp2(Vector x) {
  const Vector least = all(-126.0f);
  x = x < least ? least : x;
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the last bits.
  const Vector shifted = x + 12582912.0f;
  const Vector f = x - (shifted - 12582912.0f);
  Vector p = f * 0.0001534580806037411f + 0.0013399930903688073f;
  p = p * f + 0.009618489071726799f;
  p = p * f + 0.05550328642129898f;
  p = p * f + 0.24022646248340607f;
  p = p * f + 0.6931471824645996f;
  p = p * f + 1.0f;
  return (Vector)((Integers)p + ((Integers)shifted << 23));
}

constexpr float LOG2_E = 1.4426950408889634f;

// ---- Products of small matrices -------------------------------------------------------------------------------------

// c [rows, columns] = or += a b over `depth`: a's element (i, k) at a[i * ai + k * ak], b's and c's rows at their strides.
template <int ROW, int VECTORS>
HDS_INLINE void tile(int64_t depth, const float* a, int64_t ai, int64_t ak, const float* b, int64_t bk, float* c,
                     int64_t ci, bool add) {
  Vector sums[ROW][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < ROW; i++)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) sums[i][v] = add ? load(c + i * ci + v * WIDTH) : Vector{};
  for (int64_t k = 0; k < depth; k++) {
    Vector row[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) row[v] = load(b + k * bk + v * WIDTH);
#pragma GCC unroll 8
    for (int i = 0; i < ROW; i++) {
      const float factor = a[i * ai + k * ak];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++) sums[i][v] += row[v] * factor;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROW; i++)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) store(c + i * ci + v * WIDTH, sums[i][v]);
}

// As `tile`, for BLOCK rows of c and columns that are a multiple of WIDTH.
void product(int64_t columns, int64_t depth, const float* a, int64_t ai, int64_t ak, const float* b, int64_t bk, float* c,
             int64_t ci, bool add) {
  int64_t j = 0;
  for (; j + 2 * WIDTH <= columns; j += 2 * WIDTH)
    for (int64_t i = 0; i < BLOCK; i += ROWS)
      tile<ROWS, 2>(depth, a + i * ai, ai, ak, b + j, bk, c + i * ci + j, ci, add);
  for (; j < columns; j += WIDTH)
    for (int64_t i = 0; i < BLOCK; i += ROWS)
      tile<ROWS, 1>(depth, a + i * ai, ai, ak, b + j, bk, c + i * ci + j, ci, add);
}

// ---- Attention ------------------------------------------------------------------------------------------------------

// Query (part 0), key (1) or value (2) of each token with its bias, rotated where it is no value, times `factor`; [L padded, D].
void gather(const Head& head, int part, float factor, float* __restrict to) {
  const int64_t size = head.size, half = part < 2 ? head.half : 0;
  const float* bias = head.bias + part * size;
  for (int64_t l = 0; l < head.length; l++) {
    const float* from = head.qkv + l * head.qkv_stride + part * size;
    float* row = to + l * size;
    for (int64_t d = 0; d < size; d++) row[d] = (from[d] + bias[d]) * factor;
    const float *cosines = head.cosines + l * head.half, *sines = head.sines + l * head.half;
    for (int64_t d = 0; d < half; d++) {
      const float first = row[d], second = row[d + half];
      row[d] = first * cosines[d] - second * sines[d];
      row[d + half] = second * cosines[d] + first * sines[d];
    }
  }
  std::memset(to + head.length * size, 0, (hds::padded(head.length) - head.length) * size * sizeof(float));
}

// The other way: rows of the gradient, turned back and times `factor`, to their place; adds them up in `bias_gradient` [D].
void scatter(const Head& head, int part, float factor, float* __restrict from, float* __restrict qkv_gradient,
             float* __restrict bias_gradient) {
  const int64_t size = head.size, half = part < 2 ? head.half : 0;
  float* sums = bias_gradient + part * size;
  std::memset(sums, 0, size * sizeof(float));
  for (int64_t l = 0; l < head.length; l++) {
    float* row = from + l * size;
    const float *cosines = head.cosines + l * head.half, *sines = head.sines + l * head.half;
    for (int64_t d = 0; d < half; d++) {
      const float first = row[d], second = row[d + half];
      row[d] = first * cosines[d] + second * sines[d];
      row[d + half] = second * cosines[d] - first * sines[d];
    }
    float* to = qkv_gradient + l * head.qkv_stride + part * size;
    for (int64_t d = 0; d < size; d++) {
      const float value = row[d] * factor;
      to[d] = value;
      sums[d] += value;
    }
  }
}

// Blocks of BLOCK rows [L padded, D] turned to [D, BLOCK] each.
void turn(int64_t length, int64_t size, const float* __restrict from, float* __restrict to) {
  for (int64_t start = 0; start < length; start += BLOCK)
    for (int64_t l = 0; l < BLOCK; l++)
      for (int64_t d = 0; d < size; d++) to[start * size + d * BLOCK + l] = from[(start + l) * size + d];
}

float inverse_root(int64_t size) {
  return 1.0f / __builtin_sqrtf(static_cast<float>(size));
}

void attention_forward(const Head& head, float* out, int64_t out_stride, float* lse, float* scratch) {
  const int64_t size = head.size, rows = hds::padded(head.length);
  float *query = scratch, *key_turned = query + rows * size, *value = key_turned + rows * size;
  float *weights = value + rows * size, *sums = weights + rows * BLOCK;
  gather(head, 1, 1.0f, value);
  turn(rows, size, value, key_turned);
  gather(head, 2, 1.0f, value);
  gather(head, 0, inverse_root(size) * LOG2_E, query);
  for (int64_t start = 0; start < head.length; start += BLOCK) {
    const int64_t keys = start + BLOCK;
    for (int64_t j = 0; j < keys; j += BLOCK)
      product(BLOCK, size, query + start * size, size, 1, key_turned + j * size, BLOCK, weights + j, rows, false);
    const int64_t here = head.length - start < BLOCK ? head.length - start : BLOCK;
    float inverse[BLOCK];
    for (int64_t i = 0; i < BLOCK; i++) {
      float* row = weights + i * rows;
      for (int64_t j = start + i + 1; j < keys; j++) row[j] = -1e30f;
      Vector most = load(row);
      for (int64_t j = WIDTH; j < keys; j += WIDTH) most = greater(most, load(row + j));
      const float shift = greatest(most);
      Vector total{};
      for (int64_t j = 0; j < keys; j += WIDTH) {
        const Vector weight = exp2(load(row + j) - shift);
        total += weight;
        store(row + j, weight);
      }
      // What they added to the sum, 2^-126 each, is nothing beside its greatest, 1.
      for (int64_t j = start + i + 1; j < keys; j++) row[j] = 0.0f;
      const float divisor = sum(total);
      inverse[i] = 1.0f / divisor;
      if (i < here) lse[start + i] = shift + __builtin_log2f(divisor);
    }
    product(size, keys, weights, rows, 1, value, size, sums, size, false);
    for (int64_t i = 0; i < here; i++)
      for (int64_t d = 0; d < size; d++) out[(start + i) * out_stride + d] = sums[i * size + d] * inverse[i];
  }
}

void attention_backward(const Head& head, const float* out, const float* out_gradient, int64_t out_stride,
                        const float* lse, float* qkv_gradient, float* bias_gradient, float* scratch) {
  const int64_t size = head.size, rows = hds::padded(head.length), all_values = rows * size;
  float *query = scratch, *key = query + all_values, *key_turned = key + all_values, *value_turned = key_turned + all_values;
  float *given = value_turned + all_values, *query_gradient = given + all_values;
  float *key_gradient = query_gradient + all_values, *value_gradient = key_gradient + all_values;
  // A block of weights and one of their gradients; for each query the logarithm of its sum, and sum_d out * its gradient.
  float *weights = value_gradient + all_values, *changes = weights + BLOCK * BLOCK;
  float *logs = changes + BLOCK * BLOCK, *shared = logs + rows;

  const float scale = inverse_root(size);
  gather(head, 2, 1.0f, query);
  turn(rows, size, query, value_turned);
  gather(head, 1, 1.0f, key);
  turn(rows, size, key, key_turned);
  gather(head, 0, scale * LOG2_E, query);
  for (int64_t l = 0; l < rows; l++) {
    float* row = given + l * size;
    if (l >= head.length) {
      std::memset(row, 0, size * sizeof(float));
      // Weights of padding: 2^(0 - 1000), as good as none, and their gradients are 0.
      logs[l] = 1000.0f;
      shared[l] = 0.0f;
      continue;
    }
    std::memcpy(row, out_gradient + l * out_stride, size * sizeof(float));
    Vector total{};
    for (int64_t d = 0; d < size; d += WIDTH) total += load(row + d) * load(out + l * out_stride + d);
    logs[l] = lse[l];
    shared[l] = sum(total);
  }
  std::memset(query_gradient, 0, 3 * all_values * sizeof(float));
  for (int64_t j = 0; j < head.length; j += BLOCK) {
    for (int64_t i = j; i < head.length; i += BLOCK) {
      product(BLOCK, size, query + i * size, size, 1, key_turned + j * size, BLOCK, weights, BLOCK, false);
      product(BLOCK, size, given + i * size, size, 1, value_turned + j * size, BLOCK, changes, BLOCK, false);
      for (int64_t r = 0; r < BLOCK; r++) {
        float *weight = weights + r * BLOCK, *change = changes + r * BLOCK;
        for (int64_t c = 0; c < BLOCK; c += WIDTH) {
          const Vector values = exp2(load(weight + c) - logs[i + r]);
          store(weight + c, values);
          store(change + c, values * (load(change + c) - shared[i + r]));
        }
        if (i == j) {
          for (int64_t c = r + 1; c < BLOCK; c++) weight[c] = change[c] = 0.0f;
        }
      }
      product(size, BLOCK, weights, 1, BLOCK, given + i * size, size, value_gradient + j * size, size, true);
      product(size, BLOCK, changes, 1, BLOCK, query + i * size, size, key_gradient + j * size, size, true);
      product(size, BLOCK, changes, BLOCK, 1, key + j * size, size, query_gradient + i * size, size, true);
    }
  }
  scatter(head, 0, scale, query_gradient, qkv_gradient, bias_gradient);
  // The queries carried scale * log2(e).
  scatter(head, 1, 1.0f / LOG2_E, key_gradient, qkv_gradient, bias_gradient);
  scatter(head, 2, 1.0f, value_gradient, qkv_gradient, bias_gradient);
}

// ---- GELU -----------------------------------------------------------------------------------------------------------

// The normal distribution at x: its function within 2e-7, and exp(-x^2 / 2). The lower tail is exp(-x^2 / 2) t P(t), t = 1 / (1 + 0.35 |x|), with P
// fitted to it (our choice; form as in Abramowitz and Stegun, 26.2.17), so that it keeps its digits far out.
HDS_INLINE Vector normal(Vector x, Vector& bell) {
  const Vector size = (Vector)((Integers)x & 0x7fffffff);
  const Vector t = 1.0f / (size * 0.35f + 1.0f);
  Vector p = t * -0.029146134853363037f + 0.14397267997264862f;
  p = p * t - 0.2557162642478943f;
  p = p * t + 0.15917643904685974f;
  p = p * t - 0.02311137691140175f;
  p = p * t + 0.10550864785909653f;
  p = p * t + 0.11983270943164825f;
  p = p * t + 0.13986189663410187f;
  p = p * t + 0.13962140679359436f;
  bell = exp2(x * x * (-0.5f * LOG2_E));
  const Vector tail = bell * (p * t);
  return x < Vector{} ? tail : 1.0f - tail;
}

void gelu_forward(int64_t rows, int64_t width, const float* in, const float* bias, float* out) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < width; c += WIDTH) {
      const Vector x = load(in + r * width + c) + load(bias + c);
      Vector bell;
      store(out + r * width + c, x * normal(x, bell));
    }
}

void gelu_backward(int64_t rows, int64_t width, const float* gradient, const float* in, const float* bias,
                   float* in_gradient, float* bias_gradient) {
  std::memset(bias_gradient, 0, width * sizeof(float));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < width; c += WIDTH) {
      const Vector x = load(in + r * width + c) + load(bias + c);
      Vector bell;
      const Vector below = normal(x, bell);
      const Vector slope = below + x * (bell * 0.3989422804014327f);
      const Vector result = load(gradient + r * width + c) * slope;
      store(in_gradient + r * width + c, result);
      store(bias_gradient + c, load(bias_gradient + c) + result);
    }
}

// ---- Layer norms ----------------------------------------------------------------------------------------------------

void norms_forward(const hds::Norms& norms, int64_t rows, const float* in, float* const outs[2], float* statistics) {
  const int64_t width = norms.width;
  const float part = 1.0f / static_cast<float>(width);
  for (int64_t r = 0; r < rows; r++) {
    const float* row = in + r * width;
    Vector total{};
    for (int64_t c = 0; c < width; c += WIDTH) total += load(row + c);
    const float mean = sum(total) * part;
    Vector squares{};
    for (int64_t c = 0; c < width; c += WIDTH) {
      const Vector distance = load(row + c) - mean;
      squares += distance * distance;
    }
    const float scale = 1.0f / __builtin_sqrtf(sum(squares) * part + norms.epsilon);
    statistics[2 * r] = mean;
    statistics[2 * r + 1] = scale;
    for (int n = 0; n < norms.count; n++)
      for (int64_t c = 0; c < width; c += WIDTH)
        store(outs[n] + r * width + c, (load(row + c) - mean) * scale * load(norms.gains[n] + c) + load(norms.biases[n] + c));
  }
}

template <int COUNT>
void norms_backward_of(const hds::Norms& norms, int64_t rows, const float* in, const float* const gradients[2],
                       const float* statistics, float* in_gradient, float* sums) {
  const int64_t width = norms.width;
  const float part = 1.0f / static_cast<float>(width);
  std::memset(sums, 0, 2 * COUNT * width * sizeof(float));
  for (int64_t r = 0; r < rows; r++) {
    const float mean = statistics[2 * r], scale = statistics[2 * r + 1];
    float* to = in_gradient + r * width;
    Vector total{}, along{};
    for (int64_t c = 0; c < width; c += WIDTH) {
      const Vector normal = (load(in + r * width + c) - mean) * scale;
      Vector change{};
#pragma GCC unroll 2
      for (int n = 0; n < COUNT; n++) {
        const Vector given = load(gradients[n] + r * width + c);
        float *gain = sums + 2 * n * width + c, *bias = gain + width;
        store(gain, load(gain) + given * normal);
        store(bias, load(bias) + given);
        change += given * load(norms.gains[n] + c);
      }
      total += change;
      along += change * normal;
      store(to + c, change);
    }
    const float shift = sum(total) * part, slope = sum(along) * part;
    for (int64_t c = 0; c < width; c += WIDTH) {
      const Vector normal = (load(in + r * width + c) - mean) * scale;
      store(to + c, (load(to + c) - shift - normal * slope) * scale);
    }
  }
}

void norms_backward(const hds::Norms& norms, int64_t rows, const float* in, const float* const gradients[2],
                    const float* statistics, float* in_gradient, float* sums) {
  if (norms.count == 1)
    norms_backward_of<1>(norms, rows, in, gradients, statistics, in_gradient, sums);
  else
    norms_backward_of<2>(norms, rows, in, gradients, statistics, in_gradient, sums);
}

// ---- Loss and optimizer ---------------------------------------------------------------------------------------------

void cross_entropy(int64_t rows, int64_t width, float* logits, const int64_t* targets, const float* factors,
                   float* losses) {
  const int64_t whole = width / WIDTH * WIDTH;
  for (int64_t r = 0; r < rows; r++) {
    float* row = logits + r * width;
    Vector mosts = all(row[0]);
    for (int64_t c = 0; c < whole; c += WIDTH) mosts = greater(mosts, load(row + c));
    float most = greatest(mosts);
    for (int64_t c = whole; c < width; c++) most = most > row[c] ? most : row[c];
    const float chosen = row[targets[r]] - most;
    Vector totals{};
    for (int64_t c = 0; c < whole; c += WIDTH) {
      const Vector power = exp2((load(row + c) - most) * LOG2_E);
      totals += power;
      store(row + c, power);
    }
    float total = sum(totals);
    for (int64_t c = whole; c < width; c++) {
      row[c] = exp2(all((row[c] - most) * LOG2_E))[0];
      total += row[c];
    }
    losses[r] = __builtin_logf(total) - chosen;
    const float factor = factors[r] / total;
    for (int64_t c = 0; c < whole; c += WIDTH) store(row + c, load(row + c) * factor);
    for (int64_t c = whole; c < width; c++) row[c] *= factor;
    row[targets[r]] -= factors[r];
  }
}

void adamw(const hds::AdamW& step, float decay, int64_t count, float* __restrict weights,
           const float* __restrict gradient, float* __restrict first, float* __restrict second) {
  const hds::AdamW by = step;
  for (int64_t i = 0; i < count; i++) {
    const float change = gradient[i] * by.gradient_factor;
    first[i] += (change - first[i]) * by.first_rate;
    second[i] += (change * change - second[i]) * by.second_rate;
  }
  if (!by.moves) return;
  for (int64_t i = 0; i < count; i++)
    weights[i] = weights[i] * decay + first[i] / (__builtin_sqrtf(second[i]) * by.root_scale + by.epsilon);
}

constexpr hds::Kernels KERNELS{attention_forward, attention_backward, gelu_forward,  gelu_backward,
                               norms_forward,     norms_backward,     cross_entropy, adamw};

}  // namespace

extern "C" const hds::Kernels* HDS_KERNELS() {
  return &KERNELS;
}
