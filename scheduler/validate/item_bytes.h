#pragma once
// What one item holds, from the prices of its stage, and what moves while its gradients are reduced.

#include "scheduler/terms.h"

namespace graphpipe::scheduler::check {

struct ItemBytes {
  /// Between forward (or the forward again) and backward, without the values that come in or go out.
  Bytes stash;
  /// Between the two halves of a backward; some of it already while the first half runs.
  Bytes between_halves, made_by_first_half;
  /// While any of its actions computes.
  Bytes workspace;
  /// Values for other stages, and gradients for them.
  Bytes outputs, gradients;
};

ItemBytes item_bytes(const StageGraph& graph, StageId stage, Samples samples);

/// What a message of so many samples leaves at its receiver.
Bytes message_bytes(const ir::StageEdge& edge, bool backward, Samples samples);

/// Beside the gradients of a replica while they are reduced: the chunks of buckets that go round the ring
/// (wire/all_reduce.h), or, where they take more, the gradients of shared weights that other stages send.
Bytes bytes_of_reduction(const StageGraph& graph, StageId stage);

}  // namespace graphpipe::scheduler::check
