#pragma once
// Models as the dynamo exporter of PyTorch writes them: with the calls that nodes come from, and a signature.

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "support/text.h"
#include "tests/support/weighted_models.h"

namespace graphpipe::testing {

/// A model whose initializers are the inputs of the text but the first, all elements 0.5, without those that nothing
/// reads. `calls` has for the outputs of nodes what follows "torch.ops.aten." in the text of their calls, or that
/// behind the name of the call's result and a bar, "linear|linear.default](...", where it has several nodes;
/// `parameters` are the names that the signature lists, "NAME" for the input "p_NAME", buffers as "buffer NAME".
inline std::string exported_model(const std::string& body, const std::map<std::string, std::string>& calls,
                                  const std::vector<std::string>& parameters) {
  graphpipe_onnx::ModelProto model = parse_onnx_text(body);
  graphpipe_onnx::GraphProto& graph = *model.mutable_graph();
  const auto is_read = [&](const std::string& name) {
    return std::ranges::any_of(graph.node(), [&](const graphpipe_onnx::NodeProto& node) {
      return std::ranges::find(node.input(), name) != node.input().end();
    });
  };
  for (int i = 1; i < graph.input_size(); ++i) {
    std::vector<int64_t> dims;
    for (const auto& dim : graph.input(i).type().tensor_type().shape().dim()) dims.push_back(dim.dim_value());
    if (is_read(graph.input(i).name())) add_weight(model, graph.input(i).name(), dims);
  }
  while (graph.input_size() > 1) graph.mutable_input()->RemoveLast();
  for (graphpipe_onnx::NodeProto& node : *graph.mutable_node())
    if (const auto call = calls.find(node.output(0)); call != calls.end()) {
      auto& said = *node.add_metadata_props();
      said.set_key("pkg.torch.onnx.fx_node");
      const size_t bar = call->second.find('|');
      const std::string result = bar == std::string::npos ? call->first : call->second.substr(0, bar);
      said.set_value(text("%", result, " : [num_users=1] = call_function[target=torch.ops.aten.",
                          call->second.substr(bar == std::string::npos ? 0 : bar + 1)));
    }
  auto& entry = *graph.add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  for (const std::string& name : parameters) {
    const bool is_buffer = name.starts_with("buffer ");
    const std::string of = is_buffer ? name.substr(7) : name;
    entry.set_value(text(entry.value(), is_buffer ? "b_" : "p_", of, is_buffer ? ": BUFFER" : ": PARAMETER",
                         " target='", of, "'\n"));
  }
  model.set_producer_name("pytorch");
  return model.SerializeAsString();
}

}  // namespace graphpipe::testing
