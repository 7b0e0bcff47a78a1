// One thread per block of Philox: it draws the four words, and writes those elements that lie in its run.

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "runtime/random_fill.h"

namespace graphpipe::runtime {
namespace {

constexpr int64_t kThreads = 256;

template <typename Numbers, typename T>
__global__ void fill(T* out, RandomRuns runs, RandomKey key, Numbers numbers, int64_t blocks_per_run) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t run = thread / blocks_per_run;
  if (run >= runs.count) return;
  const int64_t first = run / runs.samples * runs.length;  // the run's first element, within its sample
  const int64_t block = first / kWordsPerBlock + thread % blocks_per_run;
  const auto sample = static_cast<uint64_t>(key.first_sample + run % runs.samples);

  uint32_t words[kWordsPerBlock] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                    static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)};
  const uint64_t philox = philox_key(key.seed, step_of(key), key.node);
  auto k0 = static_cast<uint32_t>(philox), k1 = static_cast<uint32_t>(philox >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, philox_next_key(k0, k1))
    philox_round(words[0], words[1], words[2], words[3], k0, k1);

  T values[kWordsPerBlock];
  for (int i = 0; i < kWordsPerBlock; i += 2) numbers(words + i, values + i);
  const int64_t start = block * kWordsPerBlock - first;
  for (int i = 0; i < kWordsPerBlock; ++i)
    if (start + i >= 0 && start + i < runs.length) out[run * runs.length + start + i] = values[i];
}

template <typename Numbers, typename T>
void launch(const GpuFill& filled, const Numbers& numbers, T* out, cudaStream_t stream) {
  const RandomRuns& runs = filled.runs;
  // A run whose length is no multiple of a block's may start and end within blocks.
  const int64_t parts = runs.length % kWordsPerBlock == 0 ? 0 : 2;
  const int64_t blocks_per_run = runs.length / kWordsPerBlock + parts;
  const int64_t grid = (runs.count * blocks_per_run + kThreads - 1) / kThreads;
  fill<<<static_cast<unsigned>(grid), static_cast<unsigned>(kThreads), 0, stream>>>(out, runs, filled.key, numbers,
                                                                                    blocks_per_run);
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: random numbers: ") + cudaGetErrorString(result));
}

}  // namespace

void fill_on_gpu(const GpuFill& filled, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  std::visit(
      [&](const auto& numbers) {
        filled.is_double ? launch(filled, numbers, static_cast<double*>(filled.out), on)
                         : launch(filled, numbers, static_cast<float*>(filled.out), on);
      },
      filled.numbers);
}

}  // namespace graphpipe::runtime
