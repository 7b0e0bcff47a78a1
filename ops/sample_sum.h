#pragma once
// Rules for OpDef::sample_sum: which results are sums, or means, over the samples of what each sample has alone, as
// most losses are. Such a result may be made piece by piece: the sums of micro-batches and replicas add up, and their
// means do once each is weighted by its samples.

#include "ops/op_def.h"

namespace graphpipe::ops {

/// A sum over samples of its inputs, none of which is mixed: the losses of loss.cpp.
SampleSum sums_samples(const NodeView& node, std::span<const SampleSum> inputs);
/// What input 0 is: views, casts, signs, reductions over other axes.
SampleSum as_first_input(const NodeView& node, std::span<const SampleSum> inputs);
/// Sums and differences of terms of one kind. A mean may also meet what no sample changes; a sum would count that once
/// for each piece.
SampleSum as_terms(const NodeView& node, std::span<const SampleSum> inputs);
/// A product of one of them with factors that no sample changes.
SampleSum as_factor(const NodeView& node, std::span<const SampleSum> inputs);
/// The same for a quotient, where the divisor is what no sample changes.
SampleSum as_dividend(const NodeView& node, std::span<const SampleSum> inputs);

}  // namespace graphpipe::ops
