#pragma once
// Random numbers on GPUs: a kernel fills a tensor with what random.cpp fills it with on the CPU. Dropout and uniform
// numbers are the same to the bit; the logarithms and angles of normal ones are the GPU's.

#include <cstdint>
#include <variant>

#include "runtime/program.h"
#include "runtime/random_words.h"

namespace graphpipe::runtime {

/// A tensor as runs of contiguous elements that belong to one sample: run r belongs to sample r % samples, and its
/// first element is number (r / samples) * length of that sample.
struct RandomRuns {
  int64_t count = 1, samples = 1, length = 0;
};

/// Whether words become a dropout mask, uniform or normal numbers.
using RandomNumbers = std::variant<DropoutNumbers, UniformNumbers, NormalNumbers>;

/// The step of a key: the one that lies on the device, if there is one.
GRAPHPIPE_HOST_DEVICE inline uint64_t step_of(const RandomKey& key) {
  return key.step_on_device != nullptr ? static_cast<uint64_t>(*key.step_on_device) : key.step;
}

/// All elements of a tensor of float or double on a GPU.
struct GpuFill {
  void* out = nullptr;
  bool is_double = false;
  RandomRuns runs;
  RandomKey key;
  RandomNumbers numbers;
};
/// Queues it on the stream, a cudaStream_t of the current device. Throws std::runtime_error if CUDA refuses. Needs: a
/// build with CUDA.
void fill_on_gpu(const GpuFill& fill, void* stream);

}  // namespace graphpipe::runtime
