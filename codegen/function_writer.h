#pragma once
// Writes one straight-line C++ function that runs a list of nodes.
//
// Tensors are named after their value (v17 is %17 of the graph text), parameters are w[i], unless another naming is
// given. A tensor is released right after its last use, so that memory usage matches the plan's estimate. Loads and
// stores define what the function finds when it starts and what it leaves behind; the entry in the op dictionary
// defines how a node is computed.

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/mark_table.h"
#include "codegen/naming.h"
#include "ir/graph.h"

namespace graphpipe::codegen {

/// One node to run.
struct Step {
  ir::NodeId node;
  /// For a sum of gradients of which only one operand exists in this stage: that operand, which is passed on unchanged.
  ir::ValueId only_operand;
  /// A gradient that only other stages compute: here it counts as zero, and this step only produces the zero. `node` is
  /// then the node that reads it.
  ir::ValueId zero;
  bool operator==(const Step&) const = default;
};

/// A value that is in a place when the function starts.
struct Load {
  ir::ValueId value;
  Place place;
  /// Moved out of its place, so that its memory ends with its last use here. Otherwise only read.
  bool take = false;
  /// With `take`: nothing outside of the function holds the memory, so that a result may take its place.
  bool is_own = false;
};

/// A value that the function leaves in a slot when it ends.
struct Store {
  ir::ValueId value;
  Place place;
  /// C++; empty: always. A conditional store directly follows the step that computes the value, so that it does not
  /// prolong the lifetime of the value.
  std::string condition = {};
  /// A copy, since a later function may put a result in the place of the value.
  bool copies = false;
};

/// A value that is added to an accumulator as soon as it is computed.
struct Accumulation {
  ir::ValueId value;
  Place place;
};

struct FunctionOptions {
  /// Declared parameters. The text relies on `a`, a runtime::StageArguments; on `t` if parts pass on values, and on `p`
  /// under a BlockNaming.
  std::string parameters = "const graphpipe::runtime::StageArguments& a";
  std::vector<Load> loads;
  std::vector<Store> stores;
  std::vector<Accumulation> accumulations;
  /// Places that are reset at the end.
  std::vector<Place> clears;
  /// Position in StageArguments::weights of each parameter that the steps read.
  std::map<ir::ParamId, size_t> weight_index;
  /// The nodes whose results take the places of their first operands (overwriting_nodes), of the whole function where
  /// this is a part of one. Null: they are found here.
  const IdSet<ir::NodeId>* overwriting = nullptr;
  /// shared_values of the graph, which callers of many functions find once. Null: found here, where they are needed.
  const IdSet<ir::ValueId>* shared = nullptr;
  /// If set, the function of this phase measures the time of each step (runtime/profiling/marks.h).
  MarkTable* marks = nullptr;
  ir::Phase phase = ir::Phase::kForward;
  /// Null: names by ids.
  Naming* naming = nullptr;
};

struct FunctionText {
  std::string parameters, body;
  /// Headers it needs in addition to ATen/core/Tensor.h and runtime/program.h.
  std::set<std::string> headers;

  /// Without includes.
  std::string definition(std::string_view name) const;
  std::string declaration(std::string_view name) const;
};

/// Needs: steps in an order in which every value is loaded, a parameter, or computed before it is read; every op has an
/// entry that can be emitted. Ensures: text that compiles without warnings.
FunctionText write_function(const ir::Graph& graph, std::span<const Step> steps, const FunctionOptions& options);

/// A function that runs all nodes: graph input i is read from slot[i], parameter p is w[p], and graph output j is left
/// in slot[inputs + j] unless it is a parameter; with marks after the steps if `marks` is not null. For tests of
/// operators.
FunctionText write_whole_function(const ir::Graph& graph, MarkTable* marks = nullptr);

/// The include lines of a generated file, sorted: <ATen/core/Tensor.h>, the given headers, "runtime/program.h".
std::string include_lines(const std::set<std::string>& headers);

}  // namespace graphpipe::codegen
