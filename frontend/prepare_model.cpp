#include "frontend/prepare_model.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "frontend/check_model.h"
#include "frontend/check_nodes.h"
#include "frontend/forked_call.h"
#include "frontend/handover.h"
#include "frontend/libonnx_steps.h"
#include "frontend/older_opsets.h"
#include "frontend/read_model.h"
#include "ops/op_def.h"
#include "support/check.h"

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;
using Ending = ForkedAnswer::Ending;

/// The library for which the operators were written does not know opsets above this one.
constexpr int64_t kNewestOpset = 28;

/// A file without operators of the standard domain: classifiers of ai.onnx.ml, say, or an optimizer as a model.
Diagnostic no_standard_opset(const pb::ModelProto& model) {
  std::string others;
  for (const auto& import : model.opset_import())
    others += text(others.empty() ? "" : ", ", quoted(ModelText(import.domain())));
  if (others.empty())
    return {.code = Code::kBadModel,
            .message = "the file names no opset of the standard operators",
            .hint = "export the model with torch.onnx.export"};
  return {.code = Code::kUnsupportedOp,
          .message = text("the file has no operators of the standard domain, only of ", others),
          .hint =
              "give a model of the standard operators; trees, feature extractors and optimizers that are written as "
              "models are not trained by gradients (an optimizer is chosen by --optimizer)"};
}

Status check_header(const pb::ModelProto& model) {
  if (!model.has_graph())
    return Diagnostic{
        .code = Code::kBadModel, .message = "the file holds no graph", .hint = "give an .onnx model file"};
  const int64_t opset = main_opset(model);
  if (opset < 1) return no_standard_opset(model);
  if (opset > kNewestOpset)
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .message = text("the file uses opset ", opset, ", the newest known one is ", kNewestOpset),
                      .hint = text("export with opset_version=", ops::kInternalOpset)};
  return Ok{};
}

Result<pb::ModelProto> parse(std::string_view bytes) {
  pb::ModelProto proto;
  if (proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return proto;
  return Diagnostic{.code = Code::kMalformedFile,
                    .message = "not a valid ONNX file: the fields do not form a model",
                    .hint = "give an .onnx file, or fetch the file again"};
}

/// Limits for a model of this size: exports take a second and 30 times their size at most.
ForkLimits fork_limits(size_t bytes) {
  constexpr int64_t kSmall = int64_t{1} << 30;
  const auto size = static_cast<int64_t>(bytes);
  return {.memory_bytes = kSmall + 64 * size, .cpu_seconds = 8 + size / 100'000, .answer_bytes = kSmall + 8 * size};
}

Handover run_steps(pb::ModelProto& proto, const Limits& limits, const std::function<void(LibonnxStep)>& at) {
  Handover handover;
  const Status status = run_libonnx_steps(proto, limits, at, handover.notes);
  if (status.ok()) handover.model = proto.SerializeAsString();
  else handover.problems = status.problems();
  return handover;
}

std::string answer_steps(pb::ModelProto& proto, const Limits& limits, const StepMarker& mark) {
  return encode_handover(run_steps(proto, limits, [&](LibonnxStep step) { mark(static_cast<uint8_t>(step)); }));
}

/// The function of a server; a request holds the limits and the model.
std::string answer_request(std::string_view request, const StepMarker& mark) {
  Limits limits;
  GP_CHECK(request.size() >= sizeof limits);
  std::memcpy(&limits, request.data(), sizeof limits);
  pb::ModelProto proto;
  GP_CHECK(proto.ParseFromArray(request.data() + sizeof limits, static_cast<int>(request.size() - sizeof limits)));
  return answer_steps(proto, limits, mark);
}

/// Runs the library on a model and on prefixes of it.
struct Runner {
  const Limits& limits;
  ForkLimits fork_limits;
  bool shared = false;

  ForkedAnswer operator()(pb::ModelProto& proto) const {
    if (!shared)
      return call_forked(fork_limits, [&](const StepMarker& mark) { return answer_steps(proto, limits, mark); });
    static ForkedServer server(answer_request);
    return server.call(fork_limits,
                       std::string(reinterpret_cast<const char*>(&limits), sizeof limits) + proto.SerializeAsString());
  }
};

/// The model's first nodes alone, without any outputs.
pb::ModelProto beginning_of(const pb::ModelProto& proto, int nodes) {
  pb::ModelProto beginning = proto;
  auto& graph = *beginning.mutable_graph();
  graph.mutable_node()->DeleteSubrange(nodes, graph.node_size() - nodes);
  graph.clear_output();
  return beginning;
}

/// The first node with which the library crashes, found by trying prefixes of the model; none if the crash needs the
/// whole model.
ModelText crashing_node(const pb::ModelProto& proto, const Runner& runner) {
  const auto crashes = [&](int nodes) {
    pb::ModelProto beginning = beginning_of(proto, nodes);
    return runner(beginning).ending == Ending::kCrashed;
  };
  int sound = 0, bad = proto.graph().node_size();
  if (bad == 0 || !crashes(bad)) return {};
  while (bad - sound > 1) {
    const int middle = sound + (bad - sound) / 2;
    (crashes(middle) ? bad : sound) = middle;
  }
  const pb::NodeProto& node = proto.graph().node(bad - 1);
  return ModelText(node.name().empty() ? node.op_type() : node.name());
}

Diagnostic failure(const pb::ModelProto& proto, const ForkedAnswer& answer, const Runner& runner) {
  const std::string_view step = step_name(static_cast<LibonnxStep>(answer.step));
  if (answer.ending == Ending::kNotStarted)
    return {.code = Code::kEnvironment,
            .message = text("no process can be started to read the model in: ", std::strerror(answer.error)),
            .hint = "end other processes, or raise the limit on their number"};
  if (answer.ending == Ending::kOutOfMemory || answer.ending == Ending::kOutOfTime)
    return {.code = Code::kLimitExceeded,
            .message = text("ONNX's library needs more than ",
                            answer.ending == Ending::kOutOfTime ? text(runner.fork_limits.cpu_seconds, " s")
                                                                : text(runner.fork_limits.memory_bytes >> 20, " MiB"),
                            " while ", step),
            .hint = "export the model again; if it is what you meant, simplify the part that is so costly"};
  return {.code = Code::kBadModel,
          .origin = crashing_node(proto, runner),
          .message = text("ONNX's library crashes on this model while ", step),
          .hint = "correct the node's operands and attributes, or export the model again"};
}

Result<Handover> run_isolated(pb::ModelProto& proto, const Runner& runner) {
  const ForkedAnswer answer = runner(proto);
  if (answer.ending != Ending::kAnswered) return failure(proto, answer, runner);
  if (std::optional<Handover> handover = decode_handover(answer.text)) return std::move(*handover);
  ForkedAnswer garbled;
  garbled.step = answer.step;
  return failure(proto, garbled, runner);
}

/// The call that a node was exported from, and its place.
struct CallOfNode {
  std::string exported_from, module, code, callers;
};

/// By the nodes' first outputs, whose names are preserved.
std::map<std::string, CallOfNode> calls_of(const GraphBody& body) {
  std::map<std::string, CallOfNode> calls;
  for (const OnnxNode& node : body.nodes)
    if (!node.exported_from.empty() && !node.outputs.empty())
      calls[node.outputs[0]] = {node.exported_from, node.module, node.code, node.callers};
  return calls;
}

void restore_calls(GraphBody& body, const std::map<std::string, CallOfNode>& calls) {
  if (calls.empty()) return;
  for (OnnxNode& node : body.nodes) {
    const auto call = node.outputs.empty() ? calls.end() : calls.find(node.outputs[0]);
    if (call == calls.end()) continue;
    node.exported_from = call->second.exported_from;
    node.module = call->second.module;
    node.code = call->second.code;
    node.callers = call->second.callers;
  }
}

/// TorchScript writes the axes of `permute` as the module gave them, so that some count from the last one.
void count_perm_from_first(pb::NodeProto& node) {
  if (node.op_type() != "Transpose" || !(node.domain().empty() || node.domain() == "ai.onnx")) return;
  for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
    const int rank = attribute.ints_size();
    if (attribute.name() != "perm") continue;
    for (int64_t& axis : *attribute.mutable_ints())
      if (axis < 0 && axis >= -rank) axis += rank;
  }
}

void count_perms_from_first(pb::ModelProto& proto) {
  for_each_node(*proto.mutable_graph(), count_perm_from_first);
  for (auto& function : *proto.mutable_functions())
    for (pb::NodeProto& node : *function.mutable_node()) count_perm_from_first(node);
}

}  // namespace

Result<Prepared> prepare_model(const std::string& stripped, size_t slot_count, const Limits& limits,
                               Isolation isolation) {
  GP_TRY(pb::ModelProto proto, parse(stripped));
  GP_TRY_VOID(check_header(proto));
  count_perms_from_first(proto);
  Prepared prepared;
  std::map<std::string, CallOfNode> calls;
  {
    GP_TRY(Model as_stored, read_model(proto, slot_count));
    GP_TRY_VOID(check_model(as_stored));
    // Conversion drops metadata, which tells what is a parameter, and what nodes and tensors were made from.
    prepared.model.graph.metadata = std::move(as_stored.graph.metadata);
    prepared.model.graph.folded_from = std::move(as_stored.graph.folded_from);
    calls = calls_of(as_stored.graph);
    prepared.declared_outputs = std::move(as_stored.graph.outputs);
  }
  GP_TRY_VOID(check_nodes(proto));
  Handover handover;
  if (isolation == Isolation::kNone) {
    handover = run_steps(proto, limits, [](LibonnxStep) {});
  } else {
    GP_TRY(handover, run_isolated(proto, {.limits = limits,
                                          .fork_limits = fork_limits(stripped.size()),
                                          .shared = isolation == Isolation::kSharedProcess}));
  }
  if (!handover.problems.empty()) return handover.problems;
  prepared.notes = std::move(handover.notes);
  proto.Clear();
  GP_TRY(proto, parse(handover.model));
  handover.model = {};
  std::map<std::string, std::string> metadata = std::move(prepared.model.graph.metadata);
  std::map<std::string, std::string> folded_from = std::move(prepared.model.graph.folded_from);
  GP_TRY(prepared.model, read_model(proto, slot_count));
  prepared.model.graph.metadata = std::move(metadata);
  prepared.model.graph.folded_from = std::move(folded_from);
  restore_calls(prepared.model.graph, calls);
  GP_TRY_VOID(check_model(prepared.model));
  GP_TRY_VOID(check_nodes(proto));
  return prepared;
}

}  // namespace graphpipe::frontend
