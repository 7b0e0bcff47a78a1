#pragma once
// Models with initializers, and what the importer decides of them.

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "frontend/import_onnx.h"
#include "tests/support/onnx_text.h"

namespace graphpipe::testing {

/// Adds a float initializer of `dims`, all 0.5.
inline void add_weight(graphpipe_onnx::ModelProto& model, const std::string& name, std::vector<int64_t> dims) {
  graphpipe_onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(graphpipe_onnx::TensorProto::FLOAT);
  int64_t count = 1;
  for (int64_t dim : dims) {
    tensor.add_dims(dim);
    count *= dim;
  }
  for (int64_t i = 0; i < count; ++i) tensor.add_float_data(0.5F);
}

inline std::map<std::string, frontend::ParameterDecision> decisions_of(const Result<frontend::Imported>& imported) {
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  std::map<std::string, frontend::ParameterDecision> result;
  for (const frontend::ParameterDecision& decision : imported->parameters) result[decision.name.raw()] = decision;
  return result;
}

/// A model whose initializers are declared as inputs in the text and moved here.
inline graphpipe_onnx::ModelProto model_with(const std::string& body,
                                             const std::map<std::string, std::vector<int64_t>>& weights) {
  graphpipe_onnx::ModelProto model = parse_onnx_text(body);
  for (const auto& [name, dims] : weights) add_weight(model, name, dims);
  return model;
}

}  // namespace graphpipe::testing
