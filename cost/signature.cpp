#include "cost/signature.h"

#include "ir/graph_text.h"

namespace graphpipe::cost {

namespace {

struct AttributePrinter {
  std::string operator()(const std::string& value) const { return JsonString::encode_text(value).str(); }
  std::string operator()(const ir::Dim& dim) const { return ir::print_dim(dim); }
  std::string operator()(int64_t value) const { return text(value); }
  std::string operator()(double value) const { return text(value); }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    std::string list = "[";
    for (const T& value : values) list += (list.size() > 1 ? "," : "") + (*this)(value);
    return list + "]";
  }
};

}  // namespace

std::string op_signature(const ir::Graph& graph, const ir::Node& node) {
  std::string name = node.op;
  if (!node.attributes.empty()) {
    std::string list;
    for (const auto& [key, value] : node.attributes)
      list += (list.empty() ? "" : ",") + key + "=" + std::visit(AttributePrinter{}, value);
    name += "{" + list + "}";
  }
  std::string inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) inputs += ",";
    inputs += node.inputs[i].valid() ? ir::print_type(graph.value(node.inputs[i]).type) : "_";
  }
  return name + "(" + inputs + ")";
}

}  // namespace graphpipe::cost
