#pragma once
// Layers that an exporter's optimiser has merged with another of the same input, since both began alike: what is read
// in the place of their results.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/model.h"
#include "frontend/parameters.h"
#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Whether torch.export names a value so that a layer computes, which may have parameters: "linear_1".
bool is_of_layer(std::string_view value);

/// "encoder.norm." of "encoder.norm.weight", the module with its dot.
std::string module_of(const std::string& name);

/// A layer that the optimiser has merged with another of the same input.
struct DoubtfulLayer {
  std::string value, merged_with;
  /// A module that began with the same numbers as that of the other, and is applied elsewhere as well: "encoder.norm".
  /// Empty where it may have been a normalisation without weights.
  std::string other_module;
};

/// Parameters of which the file tells nothing, by component: "weight".
using UnknownNames = std::map<std::string_view, std::vector<std::string>>;

class TwinLayers {
 public:
  /// The body after restore_parameters(), which stays as it is.
  TwinLayers(const GraphBody& body, const ExportSignature& signature);

  /// Notes which parameters the call takes, and for each value that it takes what its nodes read of the same kind,
  /// which it does not take.
  void read(const ExportedCall& call, const std::vector<const OnnxNode*>& nodes);

  /// Whether a lost layer can only be the one that nodes read in its place, applied again: that takes several
  /// parameters of one module, and no other module may have as many, counting those of which nothing is known and, of a
  /// module that has such, those that began equal to one of them.
  bool is_applied_again(const std::string& lost, const UnknownNames& unknown) const;

  /// Those of the lost layers, which no node makes, that may have been others' than the one which is read.
  std::vector<DoubtfulLayer> doubtful(const std::set<std::string>& lost, const ElementsOf& elements_of) const;

 private:
  const Tensor* tensor_of(const std::string& name) const;
  std::string equal_module(const std::set<std::string>& parameters) const;
  bool may_lack_weights(const std::string& lost, const std::set<std::string>& parameters,
                        const ElementsOf& elements_of) const;

  const GraphBody& body_;
  const ExportSignature& signature_;
  std::map<std::string_view, const Tensor*> tensors_;      // by name
  std::map<std::string, std::set<std::string>> taken_by_;  // parameters, by the results of the calls that take them
  std::map<std::string, std::set<std::string>> twins_;     // what is read in the place of values of layers
};

}  // namespace graphpipe::frontend
