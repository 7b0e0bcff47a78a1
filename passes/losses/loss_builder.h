#pragma once
// What the entries of losses/ build with: a growing graph, and the steps that several losses share.

#include <string>

#include "ir/model_spec.h"
#include "passes/pass.h"

namespace graphpipe::passes {

/// An error about the requested loss (kBadLoss).
Diagnostic bad_loss(const ModelText& origin, std::string message, std::string hint);

/// What an entry produces: the sum over what counts in a micro-batch, and how N follows from the step's data.
struct AttachedLoss {
  /// Where the stated loss has terms, their sum, each times its own scale.
  ir::ValueId sum;
  ir::Loss stated;
};

/// Every node that it appends has the origin "loss".
class LossBuilder {
 public:
  LossBuilder(ir::Graph graph, const ir::LossSpec& spec) : graph_(std::move(graph)), spec_(spec) {}

  ir::Graph& graph() { return graph_; }
  const ir::LossSpec& spec() const { return spec_; }
  const ir::TensorType& type(ir::ValueId value) const { return graph_.value(value).type; }

  /// Appends a node and returns its first output.
  Result<ir::ValueId> append(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes = {});
  /// Appends an input whose batch kind follows from its shape.
  ir::ValueId add_input(const ModelText& name, ir::InputRole role, ir::DType dtype, ir::Shape shape);

  /// Appends the input of role kLossScale: 1/N, or, for a loss with terms, a vector with that of each term behind it.
  ir::ValueId add_scale(ir::DType dtype, size_t terms);

  /// The model's input with the label's name, if there is one.
  ir::Input* known_label();
  /// The label as the loss reads it: the model's input of that name, or a new one. A new label of flattened rows
  /// [T*B, ...] lies in the data as [B, T, ...]. Errors (kBadLoss): an input of that name with another type.
  Result<ir::ValueId> label_of(ir::DType dtype, const ir::Shape& shape);
  /// A mean over all elements of `output`, whose sum `op` computes from it and a label of its type. Errors (kBadLoss):
  /// also an output without a fixed number of elements per sample.
  Result<AttachedLoss> mean_over_elements(std::string_view op, ir::ValueId output);

 private:
  ir::Graph graph_;
  const ir::LossSpec& spec_;
};

}  // namespace graphpipe::passes
