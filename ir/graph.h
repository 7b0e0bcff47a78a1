#pragma once
// The operator graph: a value that holds nodes, values, parameters, inputs and outputs.
//
// Invariants (checked by verify_graph.h): acyclic; ids dense, nodes in topological order; every value has one
// producer (a node, an input or a parameter); types and batch kinds agree with the op dictionary.
// Passes take a Graph and return a Graph. It holds no weight data: a Param says where they are.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/attributes.h"
#include "ir/loss.h"
#include "ir/types.h"
#include "support/text.h"

namespace graphpipe::ir {

struct Value {
  TensorType type;
  BatchKind batch = BatchKind::kNone;
  /// The axis that holds the batch where `batch` is kAxis, else -1.
  int batch_axis = -1;
  /// The node that computes it; none for inputs and parameters.
  NodeId producer;
  bool operator==(const Value&) const = default;
};

struct Node {
  /// The op's name in the dictionary (ops/). ONNX ops keep ONNX's name; gradient ops end in "Grad...".
  std::string op;
  Attributes attributes;
  /// An absent optional input is an invalid ValueId.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Phase phase = Phase::kForward;
  /// For gradient nodes the forward node they serve; for forward nodes none.
  NodeId serves;
  /// Valid for the nodes that add up the gradients of one forward value over its readers. Such a node may run in
  /// the reader's stage or in the producer's; the order of the additions never depends on the plan.
  ValueId sums_gradient_of;
  /// The ONNX nodes it came from, for people.
  std::vector<ModelText> origins;
  bool operator==(const Node&) const = default;
};

/// Bytes of a file: weights stay where they are and are read when they are needed. Elements of less than a byte are
/// packed there (wire/packed_elements.h), and nowhere else.
struct FileRange {
  std::string path;
  int64_t offset = 0;
  int64_t length = 0;
  /// The file holds the transpose of the parameter, a matrix.
  bool is_transposed = false;
  bool operator==(const FileRange&) const = default;
};
/// A tensor whose elements are all equal (ConstantOfShape), or small folded data.
struct FilledData {
  double value = 0;
  bool operator==(const FilledData&) const = default;
};
struct InlineData {
  std::string bytes;  // little-endian, dense
  bool operator==(const InlineData&) const = default;
};
using DataSource = std::variant<FileRange, FilledData, InlineData>;

enum class ParamKind : uint8_t {
  kWeight,    // learned, or frozen by decision
  kBuffer,    // state that the forward pass updates (running statistics); belongs to its stage
  kConstant,  // fixed data
};

struct Param {
  ValueId value;
  /// The initializer's name: what --save writes it under.
  ModelText name;
  /// Further names of the same tensor (ties, aliases).
  std::vector<ModelText> aliases;
  ParamKind kind = ParamKind::kWeight;
  bool trainable = false;
  /// The gradient touches only the rows that were looked up (embeddings).
  bool gradient_by_rows = false;
  DataSource data;
  bool operator==(const Param&) const = default;
};

enum class InputRole : uint8_t {
  kData,       // a model input, read from the data folder
  kLabel,      // the loss's label, read from the data folder
  kLossScale,  // 1/N of the step's loss, a float, or with terms one more for each (docs/semantics.md, section 4)
};
struct Input {
  ValueId value;
  ModelText name;
  InputRole role = InputRole::kData;
  bool operator==(const Input&) const = default;
};

enum class OutputRole : uint8_t {
  kModel,
  kLoss,  // scalar: this micro-batch's share of the step's loss
};
struct Output {
  ValueId value;
  ModelText name;
  OutputRole role = OutputRole::kModel;
  bool operator==(const Output&) const = default;
};

/// One use's share of a parameter's gradient. Shares are added in the order of the list, which is node order.
struct GradientShare {
  ParamId param;
  ValueId value;
  bool operator==(const GradientShare&) const = default;
};

class Graph {
 public:
  const Node& node(NodeId id) const { return nodes_[id]; }
  Node& node(NodeId id) { return nodes_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  Value& value(ValueId id) { return values_[id]; }
  const Param& param(ParamId id) const { return params_[id]; }
  Param& param(ParamId id) { return params_[id]; }

  size_t node_count() const { return nodes_.size(); }
  size_t value_count() const { return values_.size(); }
  size_t param_count() const { return params_.size(); }
  IdRange<NodeId> node_ids() const { return ids<NodeId>(nodes_.size()); }
  IdRange<ValueId> value_ids() const { return ids<ValueId>(values_.size()); }
  IdRange<ParamId> param_ids() const { return ids<ParamId>(params_.size()); }

  /// Appends a node whose inputs exist; its outputs are created with the given values (producer is filled in).
  NodeId add_node(Node node, std::vector<Value> outputs);
  /// Appends a node whose inputs and outputs all exist already, outputs without a producer.
  NodeId add_node(Node node);
  /// Appends a value without a producer.
  ValueId add_value(Value value);
  ParamId add_param(Param param, Value value);
  /// Appends a parameter whose value exists already.
  ParamId add_param(Param param);
  ValueId add_input(Input input, Value value);

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  std::vector<Output>& outputs() { return outputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  /// What the output of role kLoss is; given where there is one. Passes that take or give the loss keep it in step.
  std::optional<Loss>& loss() { return loss_; }
  const std::optional<Loss>& loss() const { return loss_; }

  /// After passes/differentiate: the gradient of a forward value, invalid where none is needed. Empty before.
  IdMap<ValueId, ValueId>& gradient_of() { return gradient_of_; }
  const IdMap<ValueId, ValueId>& gradient_of() const { return gradient_of_; }
  /// After passes/differentiate: all shares of all trainable parameters' gradients.
  std::vector<GradientShare>& gradient_shares() { return gradient_shares_; }
  const std::vector<GradientShare>& gradient_shares() const { return gradient_shares_; }

  bool operator==(const Graph&) const = default;

 private:
  IdMap<NodeId, Node> nodes_;
  IdMap<ValueId, Value> values_;
  IdMap<ParamId, Param> params_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::optional<Loss> loss_;
  IdMap<ValueId, ValueId> gradient_of_;
  std::vector<GradientShare> gradient_shares_;
};

/// For each value the nodes that read it, ascending, each once.
IdMap<ValueId, std::vector<NodeId>> readers_of_values(const Graph& graph);
/// For each value the parameter that it is, or none.
IdMap<ValueId, ParamId> params_of_values(const Graph& graph);
/// Whether it is the model's, is computed, and has an axis of the samples alone: what a run puts together from
/// micro-batches.
bool joins_samples(const Graph& graph, const Output& output);

}  // namespace graphpipe::ir
