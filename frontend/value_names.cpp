#include "frontend/value_names.h"

namespace graphpipe::frontend {

std::set<std::string> value_names(const GraphBody& body) {
  std::set<std::string> names;
  for (const Tensor& tensor : body.initializers) names.insert(tensor.name);
  for (const ValueInfo& input : body.inputs) names.insert(input.name);
  for (const OnnxNode& node : body.nodes) names.insert(node.outputs.begin(), node.outputs.end());
  return names;
}

std::string unused_name(std::set<std::string>& names, std::string name) {
  while (!names.insert(name).second) name += "'";
  return name;
}

}  // namespace graphpipe::frontend
