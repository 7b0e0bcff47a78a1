#include "runtime/random.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/random_fill.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

// Blocks computed in parallel, so that the compiler can use vector instructions.
constexpr int64_t kLanes = 16;
constexpr int64_t kWords = kWordsPerBlock * kLanes;

using Words = std::array<uint32_t, kWords>;

// The words of blocks first .. first + kLanes - 1 of a sample, in the order of the elements.
void fill_words(Words& words, uint64_t key, uint64_t sample, uint64_t first) {
  std::array<uint32_t, kLanes> c0, c1, c2, c3;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t block = first + static_cast<uint64_t>(lane);
    c0[lane] = static_cast<uint32_t>(block);
    c1[lane] = static_cast<uint32_t>(block >> 32);
    c2[lane] = static_cast<uint32_t>(sample);
    c3[lane] = static_cast<uint32_t>(sample >> 32);
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, philox_next_key(k0, k1))
    for (int64_t lane = 0; lane < kLanes; ++lane) philox_round(c0[lane], c1[lane], c2[lane], c3[lane], k0, k1);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

RandomRuns runs_of(const at::Tensor& like, const SampleLayout& layout) {
  RandomRuns runs{.length = like.numel()};
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

template <typename T, typename Numbers>
void fill_run(T* out, int64_t first_element, int64_t length, uint64_t key, uint64_t sample, const Numbers& numbers) {
  Words words;
  std::array<T, kWords> values;
  int64_t block = first_element / kWordsPerBlock;
  int64_t skipped = first_element % kWordsPerBlock;
  while (length > 0) {
    fill_words(words, key, sample, static_cast<uint64_t>(block));
    for (int64_t i = 0; i < kWords; i += 2) numbers(&words[i], &values[i]);
    const int64_t taken = std::min(length, kWords - skipped);
    std::copy_n(values.begin() + skipped, taken, out);
    out += taken;
    length -= taken;
    skipped = 0;
    block += kLanes;
  }
}

template <typename T, typename Numbers>
void fill_on_cpu(at::Tensor& result, const RandomRuns& runs, const RandomKey& key, const Numbers& numbers) {
  T* data = result.data_ptr<T>();
  const uint64_t philox = philox_key(key.seed, step_of(key), key.node);
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, runs.length));
  at::parallel_for(0, runs.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const auto sample = static_cast<uint64_t>(key.first_sample + run % runs.samples);
      fill_run(data + run * runs.length, run / runs.samples * runs.length, runs.length, philox, sample, numbers);
    }
  });
}

void* stream_of(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  return device.getStreamNativeHandle(device.getStream(tensor.device()));
}

// As double for double, as float for all other types.
at::Tensor draw(const at::Tensor& like, const SampleLayout& layout, RandomKey key, const RandomNumbers& numbers) {
  const bool is_double = like.scalar_type() == at::kDouble;
  at::Tensor result = at::empty(like.sizes(), like.options().dtype(is_double ? at::kDouble : at::kFloat));
  if (result.numel() == 0) return result.to(like.options());
  const RandomRuns runs = runs_of(like, layout);
  if (layout.batch_axis < 0 && layout.rows_per_sample == 0) key.first_sample = 0;  // no sample is part of the key
  if (like.is_cuda()) {
    fill_on_gpu({result.data_ptr(), is_double, runs, key, numbers}, stream_of(result));
  } else {
    std::visit(
        [&](const auto& kind) {
          is_double ? fill_on_cpu<double>(result, runs, key, kind) : fill_on_cpu<float>(result, runs, key, kind);
        },
        numbers);
  }
  return result.to(like.options());
}

}  // namespace

at::Tensor dropout_mask(const at::Tensor& like, const SampleLayout& layout, double ratio, const RandomKey& key) {
  GP_CHECK(ratio >= 0 && ratio <= 1);
  return draw(like, layout, key,
              DropoutNumbers{static_cast<uint64_t>(std::ldexp(ratio, 32)), ratio < 1 ? 1 / (1 - ratio) : 0});
}

at::Tensor random_uniform(const at::Tensor& like, const SampleLayout& layout, double low, double high,
                          const RandomKey& key) {
  return draw(like, layout, key, UniformNumbers(low, high));
}

at::Tensor random_normal(const at::Tensor& like, const SampleLayout& layout, double mean, double deviation,
                         const RandomKey& key) {
  return draw(like, layout, key, NormalNumbers{mean, deviation});
}

}  // namespace graphpipe::runtime
