#pragma once
// Rules for OpDef::sample_sum: which results are sums, or means, over the samples of per-sample values, as most losses
// are. Such a result may be computed piecewise: the sums of micro-batches and replicas add up, and so do their means
// once each is weighted by its number of samples.

#include "ops/op_def.h"

namespace graphpipe::ops {

/// A sum over samples of its inputs, none of which is mixed: the losses of loss.cpp.
SampleSum sums_samples(const NodeView& node, std::span<const SampleSum> inputs);
/// The same as input 0: views, casts, signs, reductions over other axes.
SampleSum as_first_input(const NodeView& node, std::span<const SampleSum> inputs);
/// Sums and differences of terms of one kind, and tensors that hold such terms side by side. A mean may also be
/// combined with a term that does not depend on samples; a sum would count that once per piece.
SampleSum as_terms(const NodeView& node, std::span<const SampleSum> inputs);
/// A product of one of them with factors that do not depend on samples.
SampleSum as_factor(const NodeView& node, std::span<const SampleSum> inputs);
/// The same as input 0 where input 1 does not depend on samples: quotients, and elements that an index picks.
SampleSum as_first_beside_constant(const NodeView& node, std::span<const SampleSum> inputs);

}  // namespace graphpipe::ops
