#pragma once
// Gives values of the module's program nodes or tensors of their own again, of which an exporter's optimiser has kept
// another: two layers of one input whose parameters began alike are one node in its files, and two tokens one tensor.
//
// The calls of the nodes that read the one name the other, which nothing in the file makes. What it was computed from
// the file does not say, but where the modules beside the known one have just one parameter of that kind that nothing
// else in the file tells of, it is taken to be that: GPT-NeoX's layer_norm_1 is of post_attention_layernorm, beside
// input_layernorm, and DeiT's expand_1 of distillation_token, beside cls_token. A token that the code of another module
// reads is that module's: FLAVA's expand_3 is of multimodal_model.cls_token. Users are warned of it.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameter_rules.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// All elements of a tensor of the file, in the order of its dims; nothing where they cannot be read or are many.
using ElementsOf = std::function<std::optional<std::string>(const Tensor& tensor)>;

struct SeparatedValue {
  std::string name;
  std::vector<std::string> parameters;
};

struct Separation {
  std::vector<SeparatedValue> values;
  /// Of new tensors, the one of the file that each is a copy of.
  std::map<std::string, Tensor> sources;
  /// For each node of the body where it stood before; nothing for new ones.
  std::vector<std::optional<size_t>> nodes;
};

/// Changes the body: new nodes and tensors are computed from the parameters of the known ones, and say of which they
/// are, as the exporter and the optimiser do. Does nothing where several parameters may be meant, or rules tie them,
/// where those of the known value were drawn or trained, and where a module may have been applied twice on one line.
Separation separate_merged(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                           const ElementsOf& elements_of);

}  // namespace graphpipe::frontend
