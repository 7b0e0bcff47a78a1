#pragma once
// docs/operators.md: what GraphPipe does with each operator of ONNX, from the op dictionary, from ONNX's schemas, and
// from what became of ONNX's node tests.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace graphpipe::conformance {

/// Of the node tests of one operator: how many there are, how many are accepted, and why the others are refused.
struct OperatorTests {
  int all = 0, accepted = 0;
  std::map<std::string, int> reasons;
};

/// The operator that a node test is about: the only one of its model; empty where there are several.
std::string tested_operator(const std::filesystem::path& model);

/// The page. `tests` by operator.
std::string operator_page(const std::map<std::string, OperatorTests>& tests);

}  // namespace graphpipe::conformance
