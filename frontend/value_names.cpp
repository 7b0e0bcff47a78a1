#include "frontend/value_names.h"

#include <cstring>
#include <iterator>
#include <utility>

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

Tensor int64_tensor(std::string name, const std::vector<int64_t>& numbers) {
  constexpr int kOnnxInt64 = 7;
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.onnx_type = kOnnxInt64;
  tensor.dims = {std::ssize(numbers)};
  tensor.data.bytes.resize(numbers.size() * sizeof(int64_t));
  std::memcpy(tensor.data.bytes.data(), numbers.data(), tensor.data.bytes.size());
  return tensor;
}

}  // namespace graphpipe::frontend
