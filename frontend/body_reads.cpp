#include "frontend/body_reads.h"

namespace graphpipe::frontend {

void collect_reads(const GraphBody& body, std::set<std::string>& reads) {
  for (const OnnxNode& node : body.nodes) {
    reads.insert(node.inputs.begin(), node.inputs.end());
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) collect_reads(inner, reads);
  }
  for (const ValueInfo& output : body.outputs) reads.insert(output.name);
}

std::set<std::string> inner_reads(const GraphBody& body) {
  std::set<std::string> reads;
  for (const OnnxNode& node : body.nodes)
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) collect_reads(inner, reads);
  return reads;
}

std::set<std::string> bound_names(const GraphBody& body) {
  std::set<std::string> names = inner_reads(body);
  for (const ValueInfo& output : body.outputs) names.insert(output.name);
  return names;
}

}  // namespace graphpipe::frontend
