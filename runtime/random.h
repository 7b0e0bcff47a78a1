#pragma once
// Random tensors of generated code. Every number is a function of its key (seed, step, node), its sample and its place
// within the sample, so micro-batches, replicas, recomputation and the schedule do not change it: slicing the samples
// of a result gives what the slice alone would have got.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): counter
// (block within the sample, sample), key from (seed, step, node). Four elements share a block.

#include <cstdint>

#include "runtime/program.h"
#include "support/splitmix64.h"

namespace graphpipe::runtime {

/// Where the samples lie in a tensor.
struct SampleLayout {
  /// Axis that holds the samples; -1: the tensor is drawn as one, for the sample that the key names.
  int64_t batch_axis = -1;
  /// Rows of that axis per sample, samples one after the other. 0 with axis -1: no sample is part of the key, the
  /// tensor is the same for all of them.
  int64_t rows_per_sample = 0;
};

/// In the type and on the device of `like`, of its shape: 0 with probability `ratio`, else 1 / (1 - ratio).
/// Needs: 0 <= ratio <= 1; at 1 all elements are 0.
at::Tensor dropout_mask(const at::Tensor& like, const SampleLayout& layout, double ratio, const RandomKey& key);
/// Uniform in [low, high).
at::Tensor random_uniform(const at::Tensor& like, const SampleLayout& layout, double low, double high,
                          const RandomKey& key);
at::Tensor random_normal(const at::Tensor& like, const SampleLayout& layout, double mean, double deviation,
                         const RandomKey& key);

}  // namespace graphpipe::runtime
