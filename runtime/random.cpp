#include "runtime/random.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "support/check.h"

namespace graphpipe::runtime {
namespace {

constexpr int64_t kWordsPerBlock = 4;
// Blocks computed in parallel, so that the compiler can use vector instructions.
constexpr int64_t kLanes = 16;
constexpr int64_t kWords = kWordsPerBlock * kLanes;
constexpr double kTwoToMinus32 = 1.0 / 4294967296.0;

using Words = std::array<uint32_t, kWords>;

uint64_t philox_key(const RandomKey& key) { return splitmix64(splitmix64(splitmix64(key.seed) ^ key.step) ^ key.node); }

// The words of blocks first .. first + kLanes - 1 of a sample, in the order of the elements.
void fill_words(Words& words, uint64_t key, uint64_t sample, uint64_t first) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53U, kMultiplier1 = 0xCD9E8D57U;
  constexpr uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
  std::array<uint32_t, kLanes> c0, c1, c2, c3;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t block = first + static_cast<uint64_t>(lane);
    c0[lane] = static_cast<uint32_t>(block);
    c1[lane] = static_cast<uint32_t>(block >> 32);
    c2[lane] = static_cast<uint32_t>(sample);
    c3[lane] = static_cast<uint32_t>(sample >> 32);
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t product0 = kMultiplier0 * c0[lane], product1 = kMultiplier1 * c2[lane];
      c0[lane] = static_cast<uint32_t>(product1 >> 32) ^ c1[lane] ^ k0;
      c2[lane] = static_cast<uint32_t>(product0 >> 32) ^ c3[lane] ^ k1;
      c1[lane] = static_cast<uint32_t>(product1);
      c3[lane] = static_cast<uint32_t>(product0);
    }
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

// A tensor as runs of contiguous elements that belong to one sample: run r belongs to sample r % samples, and its first
// element is number (r / samples) * length of that sample.
struct Runs {
  int64_t count = 1, samples = 1, length = 0;
  bool keyed_by_sample = true;
};

Runs runs_of(const at::Tensor& like, const SampleLayout& layout) {
  Runs runs{.length = like.numel(), .keyed_by_sample = layout.batch_axis >= 0 || layout.rows_per_sample > 0};
  if (layout.batch_axis < 0 || like.numel() == 0) return runs;
  GP_CHECK(layout.batch_axis < like.dim() && layout.rows_per_sample > 0);
  const int64_t rows = like.size(layout.batch_axis);
  GP_CHECK(rows % layout.rows_per_sample == 0);
  int64_t outer = 1, inner = 1;
  for (int64_t axis = 0; axis < layout.batch_axis; ++axis) outer *= like.size(axis);
  for (int64_t axis = layout.batch_axis + 1; axis < like.dim(); ++axis) inner *= like.size(axis);
  runs.samples = rows / layout.rows_per_sample;
  runs.count = outer * runs.samples;
  runs.length = layout.rows_per_sample * inner;
  return runs;
}

// Calls convert(words, out): `out` has kWords elements starting at a block boundary, of which the caller keeps some.
template <typename T, typename Convert>
void fill_run(T* out, int64_t first_element, int64_t length, uint64_t key, uint64_t sample, const Convert& convert) {
  Words words;
  std::array<T, kWords> values;
  int64_t block = first_element / kWordsPerBlock;
  int64_t skipped = first_element % kWordsPerBlock;
  while (length > 0) {
    fill_words(words, key, sample, static_cast<uint64_t>(block));
    convert(words, values);
    const int64_t taken = std::min(length, kWords - skipped);
    std::copy_n(values.begin() + skipped, taken, out);
    out += taken;
    length -= taken;
    skipped = 0;
    block += kLanes;
  }
}

template <typename T, typename Convert>
void fill(at::Tensor& result, const Runs& runs, const RandomKey& key, const Convert& convert) {
  T* data = result.data_ptr<T>();
  const uint64_t philox = philox_key(key);
  const uint64_t first_sample = runs.keyed_by_sample ? static_cast<uint64_t>(key.first_sample) : 0;
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, runs.length));
  at::parallel_for(0, runs.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const uint64_t sample = first_sample + static_cast<uint64_t>(run % runs.samples);
      fill_run(data + run * runs.length, run / runs.samples * runs.length, runs.length, philox, sample, convert);
    }
  });
}

// Drawn on the CPU, as double for double, as float for all other types.
template <typename Convert>
at::Tensor draw(const at::Tensor& like, const SampleLayout& layout, const RandomKey& key, const Convert& convert) {
  const bool is_double = like.scalar_type() == at::kDouble;
  at::Tensor result = at::empty(like.sizes(), at::TensorOptions().dtype(is_double ? at::kDouble : at::kFloat));
  const Runs runs = runs_of(like, layout);
  if (result.numel() > 0)
    is_double ? fill<double>(result, runs, key, convert) : fill<float>(result, runs, key, convert);
  return result.to(like.options());
}

}  // namespace

at::Tensor dropout_mask(const at::Tensor& like, const SampleLayout& layout, double ratio, const RandomKey& key) {
  GP_CHECK(ratio >= 0 && ratio <= 1);
  const auto min_kept = static_cast<uint64_t>(std::ldexp(ratio, 32));
  const double kept = ratio < 1 ? 1 / (1 - ratio) : 0;
  return draw(like, layout, key, [=](const Words& words, auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    for (int64_t i = 0; i < kWords; ++i) values[i] = words[i] >= min_kept ? static_cast<T>(kept) : T{0};
  });
}

at::Tensor random_uniform(const at::Tensor& like, const SampleLayout& layout, double low, double high,
                          const RandomKey& key) {
  return draw(like, layout, key, [=](const Words& words, auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    // A value next to `high` may have been rounded up to it.
    const T last = high > low ? std::nextafter(static_cast<T>(high), static_cast<T>(low)) : static_cast<T>(low);
    for (int64_t i = 0; i < kWords; ++i) {
      const auto value = static_cast<T>(low + (high - low) * static_cast<double>(words[i] >> 8) * 0x1p-24);
      values[i] = high > low ? std::min(value, last) : value;
    }
  });
}

at::Tensor random_normal(const at::Tensor& like, const SampleLayout& layout, double mean, double deviation,
                         const RandomKey& key) {
  return draw(like, layout, key, [=](const Words& words, auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    for (int64_t i = 0; i < kWords; i += 2) {  // Box and Muller: two uniforms, two normals
      const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[i]) + 1) * kTwoToMinus32));
      const double angle = 2 * std::numbers::pi * static_cast<double>(words[i + 1]) * kTwoToMinus32;
      values[i] = static_cast<T>(mean + deviation * radius * std::cos(angle));
      values[i + 1] = static_cast<T>(mean + deviation * radius * std::sin(angle));
    }
  });
}

}  // namespace graphpipe::runtime
