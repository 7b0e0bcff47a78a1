#pragma once
// Converts ONNX nodes into nodes of the operator graph.
//
// Every ONNX value has a Binding: what is known about it, and the graph value that holds it once a node needs one.
// Shape arithmetic stays known and never becomes a node; an initializer becomes a parameter when a node reads it. A
// node that fails is reported and its outputs are poisoned, so that one walk finds all problems and reports none that
// are only consequences of others.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "frontend/import_onnx.h"
#include "frontend/known.h"
#include "frontend/model.h"
#include "frontend/parameter_rules.h"
#include "frontend/row_order.h"
#include "frontend/selection.h"
#include "frontend/tensor_source.h"

namespace graphpipe::frontend {

/// Where a parameter came from; the parameter decisions use it.
enum class ParamOrigin : uint8_t { kInitializer, kConstantNode, kFolded };

/// The last number used for each name that is numbered.
using LastNumbers = std::unordered_map<std::string, int>;

/// The list first * length, (first + 1) * length, ..., bags * length, with which a loop finds its bags.
struct BagOffsets {
  ir::Dim bags;
  int64_t length = 0;
  int64_t first = 0;
};

struct Binding {
  ir::TensorType type;
  std::optional<Known> known;
  /// Known, but possibly a parameter: nodes that read it are lowered, not folded.
  bool leaf = false;
  /// Known from the shapes of values.
  bool from_shapes = false;
  /// Invalid until a node reads it.
  ir::ValueId value;
  /// Where a parameter's data are, until it is created.
  std::optional<ir::DataSource> data;
  ParamOrigin origin = ParamOrigin::kInitializer;
  std::string name;
  /// The tensors of a sequence whose length the file fixes.
  std::vector<ir::ValueId> sequence;
  /// An empty sequence.
  bool is_empty_sequence = false;
  /// An absent optional value.
  bool is_absent = false;
  /// The sequence that a loop has filled, its elements stacked along a new first axis.
  ir::ValueId stacked;
  std::optional<BagOffsets> offsets;
  /// The first rows of this value (frontend/first_rows.h); `value` is invalid.
  ir::ValueId first_rows_of;
  /// It has an axis of places that a mask picks.
  std::optional<Selected> selected;
  /// Its node failed.
  bool poisoned = false;
};

bool is_sequence(const Binding& binding);
/// Sequences have none, and the number of all bag offsets, bags + 1, cannot be expressed.
bool has_shape(const Binding& binding);

class Lowering {
 public:
  Lowering(const ImportRequest& request, const ParameterRules& rules, TensorSource& tensors, int64_t traced_batch,
           bool from_torch, std::function<bool(const std::string&)> scalar_trains)
      : request_(request),
        rules_(rules),
        tensors_(tensors),
        traced_batch_(traced_batch),
        from_torch_(from_torch),
        scalar_trains_(std::move(scalar_trains)) {}

  const ImportRequest& request() const { return request_; }
  /// The fixed batch that was re-bound, or 0.
  int64_t traced_batch() const { return traced_batch_; }
  /// Remembers a node whose constant shape may contain the batch of the export: if the import fails, it is named.
  void suspect_batch(const OnnxNode& node, const ir::Shape& constant);
  /// Text on which nodes' constants may contain a batch of this size; of any size for 0.
  std::string suspects(int64_t batch) const;
  /// The exporter follows PyTorch's conventions.
  bool from_torch() const { return from_torch_; }
  /// Whether an initializer of this name trains even if it is a scalar (parameters.h).
  bool scalar_trains(const std::string& name) const { return scalar_trains_(name); }
  ir::Graph& graph() { return graph_; }
  /// RowOrder::rows_per_step.
  std::optional<int64_t> rows_per_step(ir::ValueId value) { return row_order_.rows_per_step(graph_, value); }
  const TensorSource& tensors() const { return tensors_; }
  Diagnostics& problems() { return problems_; }
  Diagnostics& notes() { return notes_; }
  /// Those of the NonZero nodes so far.
  std::vector<Selection>& selections() { return selections_; }
  std::map<ir::ParamId, ParamOrigin>& param_origins() { return param_origins_; }

  /// Remembers which names are read, also in bodies; call once for the main graph before run().
  void note_reads(const GraphBody& body);
  bool is_read(const std::string& name) const { return read_.count(name) > 0; }
  /// The same without the outputs of the model and of bodies.
  bool is_read_by_nodes(const std::string& name) const { return read_by_nodes_.count(name) > 0; }
  /// The same except for Shape and Size, which read no element.
  bool is_read_as_data(const std::string& name) const { return read_as_data_.count(name) > 0; }

  /// Null if the name is unbound.
  Binding* find(const std::string& name);
  void bind(const std::string& name, Binding binding);
  void bind_value(const std::string& name, ir::ValueId value);
  /// An unused name: this one, with a number appended if it is taken.
  std::string unused_name(const std::string& wanted);
  /// From here on both names refer to one tensor; a parameter remembers its other name.
  void bind_alias(const std::string& alias, const std::string& of);
  /// An Identity in the file. If the alias of a parameter has the name of another parameter, the exporter has merged
  /// equal values and the two are separated again, unless the parameter file ties them.
  void bind_identity(const std::string& alias, const std::string& of);
  /// A tensor of the file, not yet a parameter. Problems name the tensor, or `owner` if it has no name.
  Result<Binding> tensor_binding(const Tensor& tensor, const ModelText& owner);
  void poison(const OnnxNode& node);
  /// Forgets what is known about the nodes' outputs: the body of a loop is lowered again.
  void forget(const std::vector<OnnxNode>& nodes);
  /// Total number of elements of the constants that replace operators.
  int64_t& constant_elements() { return constant_elements_; }
  /// Counts nodes that loops repeat; false if their total exceeds the limit.
  bool may_unroll(int64_t nodes) { return (unrolled_nodes_ += nodes) <= request_.limits.unrolled_nodes; }

  /// The graph value of a binding: creates the parameter or the constant if that has not been done.
  Result<ir::ValueId> value_of(Binding& binding, const OnnxNode& reader);

  /// Lowers the nodes of a graph in order (If bodies are lowered into the graph around them).
  void run(const std::vector<OnnxNode>& nodes);

 private:
  void lower(const OnnxNode& node);
  /// A node that is supported, and whose inputs are sound.
  Status lower_sound(const OnnxNode& as_written);
  void report_unsupported(const OnnxNode& node);
  /// Adds to a problem that a constant may contain the batch, if that may be its cause.
  void blame_batch(const OnnxNode& node, Diagnostic& problem);
  bool inputs_are_sound(const OnnxNode& node);
  /// Binds the node's outputs to their known values; returns whether no graph node is needed.
  bool fold(const OnnxNode& node);
  /// A constant in the body of a loop may become one parameter per iteration: the second is "NAME.2".
  ModelText param_name(const std::string& name);
  Result<ir::ValueId> make_constant(Binding& binding, const OnnxNode& reader);
  Result<ir::ValueId> make_filled(const Binding& binding, const OnnxNode& reader);
  /// The number of places that a mask picks, times a factor.
  Result<ir::ValueId> make_count(const Known& known, const OnnxNode& reader);

  const ImportRequest& request_;
  const ParameterRules& rules_;
  TensorSource& tensors_;
  int64_t traced_batch_;
  bool from_torch_;
  std::function<bool(const std::string&)> scalar_trains_;
  ir::Graph graph_;
  RowOrder row_order_;
  Diagnostics problems_, notes_;
  std::unordered_map<std::string, Binding> bindings_;
  LastNumbers last_values_, last_params_;
  std::map<ir::ParamId, ParamOrigin> param_origins_;
  std::map<ir::ValueId, ir::ParamId> param_of_value_;
  std::set<std::string> reported_ops_, param_names_;
  std::vector<Selection> selections_;
  int64_t unrolled_nodes_ = 0, constant_elements_ = 0;
  /// Nodes with constant shapes.
  std::vector<std::pair<ModelText, ir::Shape>> suspects_;
  std::set<std::string> read_, read_by_nodes_, read_as_data_;
};

/// The export call that gives a trainable model with a symbolic batch, for hints.
extern const char* const kExportRecipe;
/// The same if the batch is not found, perhaps because there is none.
std::string batch_hint();
/// The same if the example of the export had one sample.
std::string two_samples_hint();

}  // namespace graphpipe::frontend
