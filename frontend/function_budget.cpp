#include "frontend/function_budget.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <vector>

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;
using Nodes = google::protobuf::RepeatedPtrField<pb::NodeProto>;

/// Names of a function: domain, name, overload.
using Key = std::vector<std::string>;

class Budget {
 public:
  Budget(const pb::ModelProto& model, int64_t limit) : limit_(limit) {
    for (const pb::FunctionProto& function : model.functions())
      functions_[{function.domain(), function.name(), function.overload()}] = {&function};
  }

  Result<int64_t> count(const Nodes& nodes, int nesting);

 private:
  struct Entry {
    const pb::FunctionProto* function = nullptr;
    int64_t nodes = -1;
    bool open = false;
  };
  Result<int64_t> count_function(Entry& entry, int nesting);

  int64_t limit_;
  std::map<Key, Entry> functions_;
};

/// Real models have no longer chains of calls; the bound limits the recursion depth.
constexpr int kMaxNesting = 200;

Result<int64_t> Budget::count_function(Entry& entry, int nesting) {
  const ModelText name(entry.function->name());
  if (entry.open)
    return Diagnostic{.code = Code::kBadModel,
                      .origin = name,
                      .message = "a local function calls itself",
                      .hint = "remove the recursion: ONNX forbids it"};
  if (nesting > kMaxNesting)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .origin = name,
                      .message = text("local functions call each other more than ", kMaxNesting, " levels deep"),
                      .hint = "inline the functions before exporting"};
  if (entry.nodes < 0) {
    entry.open = true;
    GP_TRY(entry.nodes, count(entry.function->node(), nesting + 1));
    entry.open = false;
  }
  return entry.nodes;
}

Result<int64_t> Budget::count(const Nodes& nodes, int nesting) {
  int64_t total = 0;
  for (const pb::NodeProto& node : nodes) {
    int64_t inside = 1;
    const auto found = functions_.find({node.domain(), node.op_type(), node.overload()});
    if (found != functions_.end()) {
      GP_TRY(inside, count_function(found->second, nesting));
    }
    total += inside;
    for (const pb::AttributeProto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      GP_TRY(const int64_t body, count(attribute.g().node(), nesting + 1));
      total += body;
    }
    if (total > limit_)
      return Diagnostic{.code = Code::kLimitExceeded,
                        .origin = ModelText(node.name().empty() ? node.op_type() : node.name()),
                        .message = text("with its local functions inlined the model has more than ", limit_, " nodes"),
                        .hint = "raise the limit if you trust the file"};
  }
  return total;
}

}  // namespace

Result<int64_t> count_expanded_nodes(const pb::ModelProto& model, int64_t limit) {
  Budget budget(model, limit);
  return budget.count(model.graph().node(), 0);
}

}  // namespace graphpipe::frontend
