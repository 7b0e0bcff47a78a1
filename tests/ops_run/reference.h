#pragma once
// The recorded results of the ONNX reference evaluator: tests/data/op_reference.txt.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace graphpipe::ops_run {

struct ReferenceTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

/// Outputs by case name. A case that is no ONNX operator has a line without outputs.
using References = std::map<std::string, std::vector<ReferenceTensor>>;

/// Throws std::runtime_error where the file is missing or broken.
References read_references(const std::string& path);

}  // namespace graphpipe::ops_run
