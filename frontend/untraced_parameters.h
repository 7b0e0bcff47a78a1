#pragma once
// Parameters of the module of which an optimised export has neither a tensor nor a node that takes them. Ties leave
// such names and so do layers that the outputs do not need; but so do an optimiser that computes values from parameters
// alone beforehand (the exponential of CLIP's temperature, projected positions), and one that merges two norms of the
// same input which began alike.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameter_rules.h"
#include "frontend/parameters.h"
#include "frontend/restore_parameters.h"
#include "frontend/twin_layers.h"

namespace graphpipe::frontend {

/// Initializers that are rows of a table of parameters, looked up beforehand since their numbers are constants, such as
/// the positions of GPT-2: they train as the rows do. With calls_of_numbers() of each.
FoldedLookUps folded_look_ups(const GraphBody& body, const ExportSignature& signature);

struct UntracedParameters {
  /// As many or more than remain unexplained: of those of one kind ("weight"), which ones is not known.
  std::vector<std::string> names;
  /// How many neither ties to other parameters nor look-ups beforehand may explain.
  size_t unexplained = 0;
  /// What shows that the optimiser has folded or merged some; empty where they may as well be unused.
  std::string evidence;
  /// Layers of which the file does not tell whose they were: the module's of the layer that is left, applied again, or
  /// another's.
  std::vector<DoubtfulLayer> doubtful;
  /// Whether the first of them is one that left_out_in_code() or left_out_number() has found.
  bool is_left_out = false;
  /// A weight of a product that the optimiser has computed from parameters, which may have tensors as well; or empty.
  std::string folded_weight;
  /// Those that it notes.
  std::vector<std::string> folded_from;
  /// Tensors that the optimiser notes to have computed from a parameter that has a tensor of its own, or of which a row
  /// has been looked up in another place as well, and that parameter.
  std::map<std::string, std::string> parted;
  /// Of the rows that were looked up beforehand: tensors that have one row in several places, which would train apart.
  std::set<std::string> repeated;
  /// Of them: those with a row of zeros, as the padding of nn.Embedding is, which PyTorch does not train.
  std::set<std::string> with_zeros;
};

/// Those of a file of PyTorch's exporter, but for names that rules tie; none of a file without a trace of an optimiser.
/// Needs: a body after restore_parameters(), and whether that has restored any.
UntracedParameters untraced_parameters(const GraphBody& body, const ExportSignature& signature,
                                       const ParameterRules& rules, const ElementsOf& elements_of, bool has_restored);

}  // namespace graphpipe::frontend
