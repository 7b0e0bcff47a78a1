#pragma once
// Decides which tensors of the file train. The role is derived from the input slots that read a tensor, directly or
// through values computed from weights alone; the exporter's signature and the user's rules take precedence.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/import_onnx.h"
#include "frontend/lowering.h"

namespace graphpipe::frontend {

/// What torch's exporter records about an initializer, from the graph's metadata.
struct ExportSignature {
  /// state_dict name -> whether it is a parameter (else a buffer).
  std::map<std::string, bool> is_parameter;
  /// The parameter or buffer that an input of the exported program stands for: "p_fc_weight" -> "fc.weight".
  std::map<std::string, std::string> tensor_of_input;
  /// What the exported program calls the values that the module returns, in the order of the file's outputs.
  std::vector<std::string> outputs;

  /// That which an argument of a call such as "%p_fc_weight" stands for, or nothing.
  std::string tensor_of(std::string_view argument) const;
  /// Whether a tensor of this name is listed as a parameter.
  bool lists_parameter(const std::string& name) const;
};
ExportSignature read_signature(const std::map<std::string, std::string>& metadata);

struct UntracedParameters;
using FoldedLookUps = std::map<std::string, std::vector<std::string>>;

struct ParameterContext {
  const ParameterRules& rules;
  const ExportSignature& signature;
  const std::map<ir::ParamId, ParamOrigin>& origins;
  /// merged_parameters() and merged_copies() of the file.
  const std::vector<std::string>&merged, &copies;
  /// untraced_parameters() and folded_look_ups() of the file.
  const UntracedParameters& untraced;
  const FoldedLookUps& look_ups;
  /// The file was written by torch.
  bool from_torch = false;
  /// Whether deviations from the module that change what is trained are errors rather than warnings.
  bool refuses_losses = false;
  /// Whether the rules say of all parameters whether they train.
  bool says_what_trains = false;
  /// Which files may be read to distinguish masks from tables.
  std::string model_path, trusted_root;
};

/// Whether a scalar initializer trains because of its name alone: by a rule, by the exporter's signature or, if a torch
/// file has none, as an entry of the module's state.
bool scalar_trains(const std::string& name, const ParameterRules& rules, const ExportSignature& signature,
                   bool from_torch);

/// Sets kind, trainable and gradient_by_rows of every parameter and returns the list of decisions, in parameter order.
/// Adds notes on ties, on lost names and on trainable tensors. Folded constants are not listed.
std::vector<ParameterDecision> decide_parameters(ir::Graph& graph, const ParameterContext& context, Diagnostics& notes);

}  // namespace graphpipe::frontend
