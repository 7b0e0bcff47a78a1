#pragma once
// One ONNX node while it is lowered: access to its operands, and ways to bind its outputs. The handlers in lower_*.cpp
// use this interface.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/lowering.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {

class NodeContext {
 public:
  NodeContext(Lowering& lowering, const OnnxNode& node) : lowering_(&lowering), node_(&node) {}

  const OnnxNode& node() const { return *node_; }
  Lowering& lowering() { return *lowering_; }
  const Limits& limits() const { return lowering_->request().limits; }

  bool has_input(size_t i) const { return i < node_->inputs.size() && !node_->inputs[i].empty(); }
  bool has_output(size_t i) const { return i < node_->outputs.size() && !node_->outputs[i].empty(); }
  /// Whether anything reads output i.
  bool is_read(size_t i) const { return has_output(i) && lowering_->is_read(node_->outputs[i]); }
  Binding& input(size_t i);
  const ir::TensorType& type(size_t i) { return input(i).type; }
  size_t rank(size_t i) { return type(i).shape.size(); }
  /// The graph value of input i; an invalid id if it is absent.
  Result<ir::ValueId> value(size_t i);
  /// Null if input i is absent or not known at import time.
  const Known* known(size_t i);
  /// The elements of input i, which must be known integers without the batch. `what` names it in the message.
  Result<std::vector<int64_t>> integers(size_t i, std::string_view what);
  Result<ir::Shape> dims(size_t i, std::string_view what);
  Result<std::vector<double>> reals(size_t i, std::string_view what);

  int64_t int_attribute(std::string_view name, int64_t fallback) const;
  double float_attribute(std::string_view name, double fallback) const;
  std::string string_attribute(std::string_view name, std::string_view fallback) const;
  std::vector<std::string> strings_attribute(std::string_view name) const;
  std::vector<int64_t> ints_attribute(std::string_view name, std::vector<int64_t> fallback = {}) const;
  /// An axis of a tensor of this rank as 0..rank-1.
  Result<int64_t> axis(int64_t axis, size_t rank) const;
  Result<std::vector<int64_t>> axes(const std::vector<int64_t>& axes, size_t rank) const;
  /// The attribute `perm` of a Transpose of a tensor of this rank; without one the axes turn around.
  Result<std::vector<int64_t>> permutation(size_t rank) const;

  Diagnostic problem(Code code, std::string message, std::string hint) const;
  void note(Severity severity, Code code, std::string message, std::string hint);

  /// Appends a node of the op dictionary whose origin is this ONNX node.
  Result<std::vector<ir::ValueId>> emit(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                                        size_t outputs = 1);
  /// emit of a node with one output.
  Result<ir::ValueId> emit_one(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes = {});
  /// The rows first .. last - 1 of an axis.
  Result<ir::ValueId> emit_slice(ir::ValueId value, int64_t axis, int64_t first, int64_t last);
  /// Whether a constant with this many elements is still within the limit for all constants of the file. Call before
  /// computing them.
  Status has_room_for(int64_t elements) const;
  /// A constant of floating type, stored in float32 or float64 and cast from there. `what` is the suffix of its name.
  Result<ir::ValueId> constant(std::string_view what, ir::DType dtype, ir::Shape shape,
                               const std::vector<double>& numbers);
  /// A constant with all elements equal; a scalar broadcasts.
  Result<ir::ValueId> filled(double value, ir::TensorType type);
  Result<ir::ValueId> scalar(double value, ir::DType type) { return filled(value, {type, {}}); }
  /// emit, then binds the results to this node's outputs in order.
  Status emit_outputs(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes);
  /// All inputs as graph values, without trailing absent ones.
  Result<std::vector<ir::ValueId>> all_values();
  void bind(size_t output, ir::ValueId value);
  /// Output 0 is input i.
  void bind_alias(size_t i = 0);

 private:
  Lowering* lowering_;
  const OnnxNode* node_;
};

using Handler = Status (*)(NodeContext&);
/// The handler of an ONNX op of the standard domain with a special form; null for ops that keep their name, inputs and
/// attributes (lower_plain).
Handler find_handler(std::string_view op);
Status lower_plain(NodeContext& context);
/// Whether an op can be lowered at all.
bool is_supported(const OnnxNode& node);
/// What the op dictionary says of an ONNX op, or the handler's entry of one that is not in it.
ops::Dependence dependence_of(std::string_view op);
std::optional<int64_t> default_axis_of(std::string_view op);

// The op families, each a list that lower_table.cpp combines.
struct HandlerEntry {
  std::string_view op;
  Handler handler;
  /// Of an op that is composed of others: as in ops::OpDef.
  ops::Dependence dependence = ops::Dependence::kAny;
  std::optional<int64_t> default_axis = {};
};
std::vector<HandlerEntry> shape_handlers();
std::vector<HandlerEntry> index_handlers();
std::vector<HandlerEntry> reduce_handlers();
std::vector<HandlerEntry> neural_handlers();
std::vector<HandlerEntry> sequence_handlers();
std::vector<HandlerEntry> loop_handlers();
std::vector<HandlerEntry> branch_handlers();
std::vector<HandlerEntry> recurrent_handlers();
std::vector<HandlerEntry> constant_handlers();
std::vector<HandlerEntry> resize_handlers();
std::vector<HandlerEntry> random_handlers();
std::vector<HandlerEntry> quantized_handlers();
std::vector<HandlerEntry> composite_handlers();
std::vector<HandlerEntry> einsum_handlers();
std::vector<HandlerEntry> pool_handlers();
std::vector<HandlerEntry> place_handlers();
std::vector<HandlerEntry> col2im_handlers();
std::vector<HandlerEntry> fourier_handlers();
std::vector<HandlerEntry> selection_handlers();
std::vector<HandlerEntry> deform_handlers();
std::vector<HandlerEntry> unpool_handlers();
std::vector<HandlerEntry> mel_handlers();
std::vector<HandlerEntry> word_count_handlers();
std::vector<HandlerEntry> neutral_handlers();
std::vector<HandlerEntry> edge_handlers();
std::vector<HandlerEntry> clip_handlers();

/// The target of a Reshape of input 0, with wildcards and copies resolved.
Result<ir::Shape> reshape_target(NodeContext& context);
/// A Loop that nn.EmbeddingBag was exported as; any other is rejected.
Status lower_loop_over_bags(NodeContext& context);
/// The attributes of a convolution with a weight of this shape, from the node: pads, strides, dilations and groups.
Result<ir::Attributes> convolution_attributes(NodeContext& context, const ir::Shape& weight);
/// The attributes of a pool's window: kernel, pads, strides and dilations.
Result<ir::Attributes> pool_attributes(NodeContext& context);
/// The mean over a pool's windows of a value of input 0's shape; `attributes` are those of AveragePool.
Result<ir::ValueId> average_over_windows(NodeContext& context, ir::ValueId value, ir::Attributes attributes);

}  // namespace graphpipe::frontend
