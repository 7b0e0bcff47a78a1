#pragma once
// Gives parameters of the module the tensors back that an exporter's optimiser took from them.
//
// PyTorch's default export transposes the weights of linear layers in the file, gives parameters that began with equal
// values one tensor (the norms of a model that is not trained yet, the layers that nn.TransformerEncoder copies), and
// removes biases that began as zeros. What nodes were exported from says which parameters their calls take, so that the
// body can be made what the export without the optimiser holds: linear(%x, %p_fc_weight, %p_fc_bias), of which the file
// has MatMul(x, val_7), becomes Add(MatMul(x, Transpose(fc.weight)), fc.bias), with the elements of val_7 turned and
// with zeros.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameter_rules.h"
#include "frontend/parameters.h"
#include "frontend/separate_merged.h"

namespace graphpipe::frontend {

/// How the names of constants end that had shared a tensor with a parameter, and have one of their own.
inline constexpr std::string_view kConstantSuffix = "/constant";

/// A value that was looked up beforehand in a table.
struct LookedUp {
  std::string name, table;
  /// Whether one row stood in several places.
  bool is_repeated = true;
  /// Whether different rows of the table that began equal may have stood there.
  bool is_assumed = false;
};

struct Restoration {
  /// The tensors that are added, and those of tied weights that are read again; each once, in the order of the nodes.
  std::vector<std::string> names;
  /// For each added tensor, of parameters and of constants that shared one with them, the one of the file that it has
  /// its elements of; none for zeros.
  std::map<std::string, Tensor> sources;
  /// For each node of the body where it stood before; nothing for new ones (Transpose, Unsqueeze, Add, Expand).
  std::vector<std::optional<size_t>> nodes;
  std::vector<SeparatedValue> separated;  // values that had been merged with others
  std::vector<LookedUp> look_ups;
  /// Of the restored parameters those whose elements are known in their order, but not in which shape, which is that of
  /// a view of them; axes of size 1 aside.
  std::vector<std::string> reshaped;
  /// Of the restored parameters those whose elements are all equal, which may have been one number that was expanded.
  std::vector<std::string> taken_for_tokens;
  /// Values that are computed again from a parameter which the file has.
  std::vector<std::string> recomputed;
  /// Sums of squares, and gates, that the module computes on another line than that which reads them, perhaps without
  /// gradients.
  std::vector<std::string> recomputed_elsewhere;
  /// Exponentials of which that is so; such as CLIP's and Mamba's usually have gradients.
  std::vector<std::string> exponentials_elsewhere;
  bool has_changed() const {
    return !names.empty() || !sources.empty() || !separated.empty() || !look_ups.empty() || !recomputed.empty();
  }
};

/// Nodes before all others of the body, which read tensors alone, the tensors that they read, and none of those that
/// are `gone`.
void put_in_front(GraphBody& body, Restoration& restored, std::vector<OnnxNode> nodes, std::vector<Tensor> tensors,
                  const std::set<std::string>& gone);

/// Whether a tensor of the file may be the transposed copy of another one, as it is of tied weights.
using MayBeTransposes = std::function<bool(const Tensor& matrix, const Tensor& copy)>;

struct TensorReaders {
  MayBeTransposes may_be_transposes;
  ElementsOf elements_of;
};

/// Changes the body, but for what is not sure; parameters that rules tie to others stay theirs.
Restoration restore_parameters(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                               const TensorReaders& readers);

}  // namespace graphpipe::frontend
