#pragma once
// What every pass is given, and the few steps that many passes share.

#include <optional>
#include <string>

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::passes {

enum class LossKind : uint8_t {
  kNone,  // the graph is not trained: no loss is attached
  kCrossEntropy,
  kMeanSquaredError,
  kBceWithLogits,
  kContrastive,  // symmetric cross entropy of a [B, B] similarity output
  kOutput,       // a scalar output of the graph is the loss
};
enum class LossReduction : uint8_t { kMean, kSum };

/// What the user asked for with --loss.
struct LossSpec {
  LossKind kind = LossKind::kNone;
  /// Name of the graph output that the loss reads.
  ModelText output;
  /// Name of the label; an input of the model, or a new one. Unused by kContrastive and kOutput.
  ModelText label;
  /// Label value that does not count (cross entropy).
  int64_t ignore_index = -100;
  /// Only for kOutput: the other losses are means over what counts.
  LossReduction reduction = LossReduction::kMean;
  /// The class axis of cross entropy, for the cases that ranks do not decide.
  std::optional<int> class_axis;
};

struct PassContext {
  LossSpec loss;
  /// Nothing is trained: the model's outputs stay beside the loss, and there are no gradients.
  bool forward_only = false;
  /// Where passes report what they noticed; may be null.
  Diagnostics* notes = nullptr;

  void note(Diagnostic diagnostic) const {
    if (notes) notes->push_back(std::move(diagnostic));
  }
};

/// Appends a node whose output types come from its entry in the op dictionary. Errors: no entry (kUnsupportedOp), or
/// what inference refuses.
Result<ir::NodeId> append_node(ir::Graph& graph, ir::Node node);

/// The first of the node's origins, or an empty name.
ModelText origin_of(const ir::Graph& graph, ir::NodeId node);

}  // namespace graphpipe::passes
