#pragma once
// The walk that turns ONNX nodes into nodes of the operator graph.
//
// Every ONNX value has a Binding: what is known of it, and the graph value that holds it once somebody needs one.
// Shape arithmetic stays known and never becomes a node; an initializer becomes a parameter when a node reads it.
// A node that fails is reported and its outputs are poisoned, so that one walk finds all problems and no problem is
// reported through its consequences.

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
#include "frontend/selection.h"
#include "frontend/tensor_source.h"

namespace graphpipe::frontend {

/// Where a parameter came from; the parameter decisions read it.
enum class ParamOrigin : uint8_t { kInitializer, kConstantNode, kFolded };

/// The last number behind each name that is numbered.
using LastNumbers = std::unordered_map<std::string, int>;

/// The list first * length, (first + 1) * length, ..., bags * length, by which a loop finds its bags.
struct BagOffsets {
  ir::Dim bags;
  int64_t length = 0;
  int64_t first = 0;
};

struct Binding {
  ir::TensorType type;
  std::optional<Known> known;
  /// Known, but a parameter may hang on it: nodes that read it are lowered, not folded away.
  bool leaf = false;
  /// Known from the shapes of values.
  bool from_shapes = false;
  /// Invalid until a node reads it.
  ir::ValueId value;
  /// Where a parameter's data lie, until it is made.
  std::optional<ir::DataSource> data;
  ParamOrigin origin = ParamOrigin::kInitializer;
  std::string name;
  /// The tensors of a sequence that the file makes of so many.
  std::vector<ir::ValueId> sequence;
  /// A sequence of none.
  bool is_empty_sequence = false;
  /// An optional value that is not there.
  bool is_absent = false;
  /// The sequence that a loop has filled, its elements stacked along a new first axis.
  ir::ValueId stacked;
  std::optional<BagOffsets> offsets;
  /// It is the first rows of this value (frontend/first_rows.h); `value` is invalid.
  ir::ValueId first_rows_of;
  /// It has an axis of the places that a mask picks.
  std::optional<Selected> selected;
  /// Its node failed.
  bool poisoned = false;
};

bool is_sequence(const Binding& binding);
/// Sequences have none, and that of all offsets of bags, bags + 1, has no form.
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
  /// Remembers a node whose constant shape may hold the batch of the export: where the import fails, it is named.
  void suspect_batch(const OnnxNode& node, const ir::Shape& constant);
  /// Words on which nodes' constants may hold a batch of this size; of any size for 0.
  std::string suspects(int64_t batch) const;
  /// The exporter follows PyTorch's conventions.
  bool from_torch() const { return from_torch_; }
  /// Whether an initializer of this name trains wherever a scalar may (parameters.h).
  bool scalar_trains(const std::string& name) const { return scalar_trains_(name); }
  ir::Graph& graph() { return graph_; }
  Diagnostics& problems() { return problems_; }
  Diagnostics& notes() { return notes_; }
  /// Of the NonZero nodes so far.
  std::vector<Selection>& selections() { return selections_; }
  std::map<ir::ParamId, ParamOrigin>& param_origins() { return param_origins_; }

  /// Remembers which names are read, in the bodies too; call once for the main graph before run().
  void note_reads(const GraphBody& body);
  bool is_read(const std::string& name) const { return read_.count(name) > 0; }
  /// The same without the outputs of the model and of bodies.
  bool is_read_by_nodes(const std::string& name) const { return read_by_nodes_.count(name) > 0; }
  /// The same but for Shape and Size, which ask for no element.
  bool is_read_as_data(const std::string& name) const { return read_as_data_.count(name) > 0; }

  /// Null where nothing has the name.
  Binding* find(const std::string& name);
  void bind(const std::string& name, Binding binding);
  void bind_value(const std::string& name, ir::ValueId value);
  /// A name that nothing has: this one, with a number behind it where it is taken.
  std::string unused_name(const std::string& wanted);
  /// Both names mean one tensor from here on; a parameter remembers its other name.
  void bind_alias(const std::string& alias, const std::string& of);
  /// An Identity in the file. Where the alias of a parameter is named like a parameter of its own, the exporter has
  /// merged equal values and the two are parted again, unless the parameter file ties them.
  void bind_identity(const std::string& alias, const std::string& of);
  /// A tensor of the file, not yet a parameter. Problems name the tensor, or `owner` where it has no name.
  Result<Binding> tensor_binding(const Tensor& tensor, const ModelText& owner);
  void poison(const OnnxNode& node);
  /// Nothing is known any more of what the nodes make: the body of a loop is lowered again.
  void forget(const std::vector<OnnxNode>& nodes);
  /// Numbers of the constants that operators have been written out as.
  int64_t& constant_elements() { return constant_elements_; }
  /// Counts nodes that loops repeat; false where all of them are more than the limit.
  bool may_unroll(int64_t nodes) { return (unrolled_nodes_ += nodes) <= request_.limits.unrolled_nodes; }

  /// The graph value of a binding: makes the parameter or the constant where none has been made.
  Result<ir::ValueId> value_of(Binding& binding, const OnnxNode& reader);

  /// Lowers the nodes of a graph in order (If bodies are lowered into the graph around them).
  void run(const std::vector<OnnxNode>& nodes);

 private:
  void lower(const OnnxNode& node);
  void report_unsupported(const OnnxNode& node);
  /// Says of a problem that a constant may hold the batch, where that may be its cause.
  void blame_batch(const OnnxNode& node, Diagnostic& problem);
  bool inputs_are_sound(const OnnxNode& node);
  /// Binds the node's outputs to what they are known to be; returns whether no graph node is needed.
  bool fold(const OnnxNode& node);
  /// Of a constant in the body of a loop each iteration may have one of its own: the second is "NAME.2".
  ModelText param_name(const std::string& name);
  Result<ir::ValueId> make_constant(Binding& binding, const OnnxNode& reader);
  Result<ir::ValueId> make_filled(const Binding& binding, const OnnxNode& reader);
  /// How many places a mask picks, times a factor.
  Result<ir::ValueId> make_count(const Known& known, const OnnxNode& reader);

  const ImportRequest& request_;
  const ParameterRules& rules_;
  TensorSource& tensors_;
  int64_t traced_batch_;
  bool from_torch_;
  std::function<bool(const std::string&)> scalar_trains_;
  ir::Graph graph_;
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

/// The export call that gives a model which can be trained and re-batched, for hints.
extern const char* const kExportRecipe;
/// The same where the batch is not found, which may be because there is none.
std::string batch_hint();

}  // namespace graphpipe::frontend
