#include "tests/ops_run/reference.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace graphpipe::ops_run {
namespace {

/// "f32 2,3 0.5 1 ...": dtype, shape ("-" for a scalar), elements.
ReferenceTensor parse_tensor(std::istringstream& words) {
  ReferenceTensor tensor;
  std::string shape;
  words >> tensor.dtype >> shape;
  size_t count = 1;
  std::istringstream dims(shape == "-" ? "" : shape);
  for (std::string dim; std::getline(dims, dim, ',');) {
    tensor.shape.push_back(std::stoll(dim));
    count *= static_cast<size_t>(tensor.shape.back());
  }
  for (size_t i = 0; i < count; ++i) {
    std::string word;
    if (!(words >> word)) throw std::runtime_error("op_reference.txt ends within a tensor");
    tensor.values.push_back(std::strtod(word.c_str(), nullptr));
  }
  return tensor;
}

}  // namespace

References read_references(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  References result;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string name;
    size_t outputs = 0;
    words >> name >> outputs;
    std::vector<ReferenceTensor>& tensors = result[name];
    for (size_t i = 0; i < outputs; ++i) tensors.push_back(parse_tensor(words));
  }
  return result;
}

}  // namespace graphpipe::ops_run
