#include "tests/conformance/operator_table.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "frontend/node_context.h"
#include "ops/op_def.h"
#include "support/text.h"
#include "tests/ops_run/op_cases.h"
#include "wire/element_type.h"

namespace graphpipe::conformance {
namespace {

namespace pb = graphpipe_onnx;

constexpr const char* kFront = R"(# The operators of ONNX

Written by `scripts/conformance --update`; a test compares it with the code. `graphpipe lint` says
of a model which of its nodes are refused, and why.

- *versions*: of the operator in ONNX; a model of any opset up to 28 is read, older ones are converted to opset 21.
- *how*: `own`, an entry of `ops/`; `lowered`, to entries of `ops/` while the model is read; `function`, by the function body
  that ONNX gives it, where all of that is supported; `no`, refused.
- *types*: of the first operand that the entry computes with; more are read, cast and passed on.
  `uint16`, `uint32`, `uint64`, small floats and integers of less than a byte are computed with in a wider type and cast back.
- *gradient*: whether a gradient goes through it; `parts`: through what it is lowered to.
- *node tests*: of ONNX's own tests of the operator alone, how many are accepted, if need be with constants for all inputs but
  the first; `tests/data/conformance.txt` lists what
  their comparison gave, one by one. Then why the others are refused, most frequent first.

| operator | versions | how | types | gradient | node tests | refused |
|---|---|---|---|---|---|---|
)";

// The types that the entry's inference takes for the operands that its examples have in float32, or, where they have
// none, the types of its examples.
std::string types_of(const ops::OpDef& entry) {
  std::string types;
  for (const wire::ElementTypeInfo& info : wire::kElementTypes) {
    if (!wire::is_computed_in(info.type)) continue;
    bool taken = false;
    for (size_t i = 0; i < entry.examples.size() && !taken; ++i) {
      const auto& inputs = entry.examples[i].inputs;
      const bool computes_with_floats = std::ranges::any_of(
          inputs, [](const ops::ExampleInput& input) { return input.dtype == wire::ElementType::kFloat32; });
      if (computes_with_floats) taken = ops_run::make_case(entry, i, info.type).forward.valid();
      else taken = !inputs.empty() && inputs[0].dtype == info.type;
    }
    if (taken) types += (types.empty() ? "" : " ") + std::string(info.short_name);
  }
  return types;
}

struct Row {
  std::string how = "no", types, gradient;
};

Row row_of(const pb::OpSchema& schema) {
  const frontend::OnnxNode node{
      .name = {}, .op = schema.Name(), .domain = {}, .inputs = {}, .outputs = {}, .attributes = {}};
  const ops::OpDef* entry = ops::find_op(schema.Name());
  if (entry != nullptr && frontend::is_supported(node))
    return {.how = "own", .types = types_of(*entry), .gradient = entry->gradient != nullptr ? "yes" : "no"};
  if (frontend::is_supported(node)) return {.how = "lowered", .types = "", .gradient = "parts"};
  if (schema.HasFunction() || schema.HasContextDependentFunction())
    return {.how = "function", .types = "", .gradient = "parts"};
  return {};
}

std::string versions_of(const std::string& name) {
  std::set<int> versions;
  for (const pb::OpSchema& schema : pb::OpSchemaRegistry::get_all_schemas_with_history())
    if (schema.domain().empty() && schema.Name() == name) versions.insert(schema.SinceVersion());
  std::string words;
  for (const int version : versions) words += (words.empty() ? "" : " ") + std::to_string(version);
  return words;
}

std::string reasons_text(const OperatorTests& tests) {
  std::vector<std::pair<std::string, int>> reasons(tests.reasons.begin(), tests.reasons.end());
  std::ranges::stable_sort(reasons, [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kMaxReasons = 3;
  std::string words;
  for (size_t i = 0; i < std::min(reasons.size(), kMaxReasons); ++i)
    words += text(words.empty() ? "" : "; ", reasons[i].second, ": ", reasons[i].first);
  if (reasons.size() > kMaxReasons) words += text("; ", reasons.size() - kMaxReasons, " more reasons");
  // A bar would end the cell.
  std::ranges::replace(words, '|', '/');
  return words;
}

}  // namespace

std::string tested_operator(const std::filesystem::path& model) {
  std::ifstream file(model, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  pb::ModelProto proto;
  if (!proto.ParseFromString(bytes) || proto.graph().node_size() != 1) return {};
  const pb::NodeProto& node = proto.graph().node(0);
  return node.domain().empty() || node.domain() == "ai.onnx" ? node.op_type() : "";
}

std::string operator_page(const std::map<std::string, OperatorTests>& tests) {
  std::map<std::string, const pb::OpSchema*> newest;
  const std::vector<pb::OpSchema> schemas = pb::OpSchemaRegistry::get_all_schemas();
  for (const pb::OpSchema& schema : schemas)
    if (schema.domain().empty() && !schema.Deprecated()) newest[schema.Name()] = &schema;
  std::string page = kFront;
  for (const auto& [name, schema] : newest) {
    const Row row = row_of(*schema);
    const auto found = tests.find(name);
    const OperatorTests own = found == tests.end() ? OperatorTests() : found->second;
    page += text("| ", name, " | ", versions_of(name), " | ", row.how, " | ", row.types, " | ", row.gradient, " | ",
                 own.all == 0 ? "" : text(own.accepted, "/", own.all), " | ", reasons_text(own), " |\n");
  }
  return page;
}

}  // namespace graphpipe::conformance
