#pragma once
// Random tensors of generated code. Every number is a function of its key (seed, step, node), its sample and its
// position within the sample, so micro-batches, replicas, recomputation and the schedule do not change it: a slice of
// the samples of a result is what the slice alone would have produced. How: random_words.h.

#include <cstdint>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// Where the samples are in a tensor.
struct SampleLayout {
  /// Axis that holds the samples; -1: the tensor is drawn as a whole, for the sample that the key names.
  int64_t batch_axis = -1;
  /// Rows of that axis per sample, one sample after the other. 0 with axis -1: no sample is part of the key, and the
  /// tensor is the same for all of them.
  int64_t rows_per_sample = 0;
};

/// With the type, device and shape of `like`: 0 with probability `ratio`, otherwise 1 / (1 - ratio). Needs: 0 <= ratio
/// <= 1; at 1 all elements are 0.
at::Tensor dropout_mask(const at::Tensor& like, const SampleLayout& layout, double ratio, const RandomKey& key);
/// Uniform in [low, high).
at::Tensor random_uniform(const at::Tensor& like, const SampleLayout& layout, double low, double high,
                          const RandomKey& key);
at::Tensor random_normal(const at::Tensor& like, const SampleLayout& layout, double mean, double deviation,
                         const RandomKey& key);

}  // namespace graphpipe::runtime
