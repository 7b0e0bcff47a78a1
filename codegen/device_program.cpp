#include "codegen/device_program.h"

#include <algorithm>
#include <array>

#include "codegen/input_table.h"
#include "codegen/loss_updates.h"
#include "codegen/table_text.h"
#include "ops/emit_helpers.h"
#include "support/check.h"

namespace graphpipe::codegen {
namespace {

using ir::DeviceId;
using ir::StageId;

std::string_view action_op(wire::ActionOp op) {
  constexpr std::array<std::string_view, wire::kActionOpCount> kNames = {
      "kForward",        "kBackward",     "kInputGradient",   "kWeightGradient", "kRecompute", "kSendForward",
      "kReceiveForward", "kSendBackward", "kReceiveBackward", "kReduceGradient", "kNorm",      "kStep",
      "kPublish",        "kFreeVersion",  "kSlice",           "kConcatenate",    "kAllocate",  "kRelease",
      "kOffload",        "kReload",       "kFlush",           "kTraceMark"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view stream_name(wire::Stream stream) {
  constexpr std::array<std::string_view, 3> kNames = {"kCompute", "kCommunication", "kCollective"};
  return kNames[static_cast<size_t>(stream)];
}

std::string action_row(const wire::ActionRow& row) {
  return text("{", action_op(row.op), ", ", stream_name(row.stream), ", ", row.stage, ", ", row.replica, ", {",
              row.range.first, ", ", row.range.last, "}, ", row.edge, ", ", row.peer_replica, ", ", row.slot, ", ",
              row.version, row.overlaps_next ? ", true}" : "}");
}

/// A graph without a loss runs forward only, so nothing is divided by a normalizer.
ir::Loss stated_loss(const ir::Graph& graph) {
  return graph.loss().value_or(ir::Loss{.normalizer = wire::LossNormalizer::kOne});
}

template <typename Range>
std::vector<std::string> range_rows(const std::vector<Range>& ranges) {
  std::vector<std::string> rows;
  for (const Range& range : ranges) rows.push_back(text("{", range.first, ", ", range.last, "}"));
  return rows;
}

/// `counted` and `terms` initialise the spans.
std::string loss_row(const ir::Graph& graph, const ir::Loss& loss, TensorTable& tensors, std::string_view counted,
                     std::string_view terms) {
  constexpr std::array<std::string_view, 3> kNames = {"kSamples", "kCountedPositions", "kOne"};
  std::string label = "{}";
  for (const ir::Input& input : graph.inputs())
    if (!loss.label.empty() && input.name == loss.label) label = data_row(graph, input, -1, tensors);
  return text("{LossRow::Normalizer::", kNames[static_cast<size_t>(loss.normalizer)], ", ", label, ", ",
              ops::integer(loss.ignore_index.value_or(0)), ", ", loss.ignore_index ? "true" : "false", ", ",
              loss.elements_per_sample, ", ", counted, terms.empty() ? "" : text(", ", terms), "}");
}

/// The loss of a plan, and the arrays that its rows name.
struct LossText {
  std::string row, arrays;
};

LossText loss_text(const ir::Graph& graph, const ir::Loss& loss, TensorTable& tensors) {
  std::string arrays = array_text("graphpipe::wire::PositionRange", "kCounted", range_rows(loss.counted));
  std::vector<std::string> terms;
  for (const ir::Loss& term : loss.terms) {
    const std::string counted = text("kCountedOfTerm", terms.size() + 1);
    arrays += array_text("graphpipe::wire::PositionRange", counted, range_rows(term.counted));
    terms.push_back(loss_row(graph, term, tensors, span_text(counted, term.counted.size()), ""));
  }
  arrays += array_text("LossRow", "kLossTerms", terms);
  return {loss_row(graph, loss, tensors, span_text("kCounted", loss.counted.size()), terms.empty() ? "" : "kLossTerms"),
          std::move(arrays)};
}

std::vector<std::string> stage_rows(const ir::StageGraph& stages, const ir::Schedule& schedule) {
  std::vector<std::string> rows;
  for (StageId id : stages.stage_ids()) {
    const ir::StageChoice& choice = stages.stages[id].choice;
    const int slots = id.index() < schedule.slots.size() ? schedule.slots[id] : 1;
    rows.push_back(text("{", choice.micro_batch, ", ", choice.devices.size(),
                        ", ReplicaMode::", choice.mode == ir::ReplicaMode::kSplit ? "kSplit" : "kRoundRobin", ", ",
                        slots, ", ", choice.recompute ? "true" : "false", ", ",
                        choice.divides_optimizer_state() ? "true" : "false", "}"));
  }
  return rows;
}

std::vector<std::string> placement_rows(const ir::StageGraph& stages, const Ranks& ranks) {
  std::vector<std::string> rows;
  for (StageId id : stages.stage_ids()) {
    const std::vector<DeviceId>& devices = stages.stages[id].choice.devices;
    for (size_t replica = 0; replica < devices.size(); ++replica)
      rows.push_back(text("{", id, ", ", replica, ", ", ranks.rank_of[devices[replica]], "}"));
  }
  return rows;
}

/// For each weight group the array of its stages, then the table of all groups.
std::string group_arrays(const WeightGroups& groups) {
  std::string arrays;
  std::vector<std::string> rows;
  for (size_t group = 0; group < groups.stages.size(); ++group) {
    std::vector<std::string> stages;
    for (StageId stage : groups.stages[group]) stages.push_back(text(stage));
    arrays += array_text("int32_t", text("kGroup", group), stages);
    rows.push_back(text("{", group, ", kGroup", group, "}"));
  }
  return arrays + array_text("GroupRow", "kGroups", rows);
}

std::string device_name(size_t rank) { return text("device", rank); }

}  // namespace

Ranks rank_devices(const ir::StageGraph& stages, const ir::Schedule& schedule) {
  Ranks ranks;
  size_t devices = 0;
  for (const ir::Program& program : schedule.programs) devices = std::max(devices, program.device.index() + 1);
  for (const ir::Stage& stage : stages.stages)
    for (DeviceId device : stage.choice.devices) devices = std::max(devices, device.index() + 1);
  ranks.rank_of.resize(devices, -1);
  for (const ir::Program& program : schedule.programs) {
    if (program.actions.empty()) continue;
    ranks.rank_of[program.device] = static_cast<int>(ranks.programs.size());
    ranks.programs.push_back(&program);
    ranks.stages.emplace_back();
  }
  for (StageId id : stages.stage_ids())
    for (DeviceId device : stages.stages[id].choice.devices) {
      GP_CHECK(ranks.rank_of[device] >= 0);
      std::vector<StageId>& held = ranks.stages[static_cast<size_t>(ranks.rank_of[device])];
      if (held.empty() || held.back() != id) held.push_back(id);
    }
  return ranks;
}

std::vector<SourceFile> write_plan_table(const ir::Graph& graph, const ir::StageGraph& stages, ir::StageId loss_stage,
                                         const ir::Schedule& schedule, const Ranks& ranks, const WeightGroups& groups,
                                         const GenerateOptions& options, const FirstLines& first) {
  std::vector<std::string> edges;
  for (const ir::StageEdge& edge : stages.edges) edges.push_back(text("{", edge.from, ", ", edge.to, "}"));
  const std::vector<std::string> rows = stage_rows(stages, schedule);
  const std::vector<std::string> placement = placement_rows(stages, ranks);
  const std::vector<std::string> updates = range_rows(loss_updates(loss_stage, schedule));
  TensorTable tensors;
  const LossText loss = loss_text(graph, stated_loss(graph), tensors);

  std::string body =
      "#include \"programs/plan.h\"\n\nnamespace pipeline {\nnamespace {\n\nusing namespace graphpipe::runtime;\n\n";
  body +=
      "// micro-batch, replicas, mode, slots, recompute, shards optimizer\n" + array_text("StageRow", "kStages", rows);
  body += "// from, to\n" + array_text("EdgeRow", "kEdges", edges);
  body += "// stage, replica, device\n" + array_text("PlacementRow", "kPlacement", placement);
  if (!updates.empty()) body += "// samples [first, last)\n";
  body += array_text("graphpipe::wire::SampleRange", "kLossUpdates", updates) + tensors.dims_array();
  body += loss.arrays;
  body += group_arrays(groups) + "\n}  // namespace\n\n";
  body += text(
      "const PlanTable plan = {\n    .plan_digest = ", CppLiteral::encode(ModelText(options.plan_digest)).str(),
      ",\n    .batch = ", stages.batch.count / stages.batches,
      stages.batches > 1 ? text(",\n    .batches = ", stages.batches) : "",
      ",\n    .device_count = ", ranks.programs.size(),
      ",\n    .optimizer = ", CppLiteral::encode(ModelText(options.optimizer)).str(),
      ",\n    .threads = ", options.threads, ",\n    .seed = ", options.seed,
      "u,\n    .scales_loss = ", has_gradients_in_fp16(graph) ? "true" : "false",
      ",\n    .longest_action_ms = ", options.longest_action_ms, ",\n    .loss = ", loss.row,
      ",\n    .loss_updates = ", span_text("kLossUpdates", updates.size()), ",\n    .outputs = ",
      std::ranges::count_if(graph.outputs(),
                            [&](const ir::Output& output) { return ir::joins_samples(graph, output); }),
      ",\n    .stages = ", span_text("kStages", rows.size()), ",\n    .edges = ", span_text("kEdges", edges.size()),
      ",\n    .placement = ", span_text("kPlacement", placement.size()),
      ",\n    .groups = ", span_text("kGroups", groups.stages.size()), ",\n};\n\n}  // namespace pipeline\n");
  const std::string header =
      "#pragma once\n#include \"runtime/program.h\"\n\nnamespace pipeline {\n\nextern const "
      "graphpipe::runtime::PlanTable plan;\n\n}\n";
  return {{"programs/plan.h", first.of_model + header}, {"programs/plan.cpp", first.of_plan + body}};
}

std::vector<SourceFile> write_device_program(const Ranks& ranks, size_t rank, Bytes arena, const FirstLines& first) {
  const std::string name = device_name(rank);
  std::vector<std::string> actions;
  for (const wire::ActionRow& row : ranks.programs[rank]->actions) actions.push_back(action_row(row));
  // Named, because the tables of many devices are compiled as one file (cmake_project.cpp).
  const std::string tables = text("tables_of_", name);
  std::string body =
      text("#include \"programs/", name, ".h\"\n\n#include \"programs/plan.h\"\n\n", "namespace pipeline {\nnamespace ",
           tables, " {\n\nusing enum graphpipe::wire::ActionOp;\nusing enum graphpipe::wire::Stream;\n\n");
  body += "// op, stream, stage, replica, samples [first, last), edge, peer replica, slot, version, overlaps next\n";
  body += array_text("graphpipe::wire::ActionRow", "kActions", actions) + text("\n}  // namespace ", tables);
  body += text("\n\nconst graphpipe::runtime::DeviceProgram ", name, " = {", rank, ", &plan, ",
               span_text(text(tables, "::kActions"), actions.size()), ", {}, ", arena.count,
               "};\n\n}  // namespace pipeline\n");
  std::string stages;
  for (StageId stage : ranks.stages[rank])
    stages += text("namespace stage", stage, " {\nextern const graphpipe::runtime::StageEntry entry;\n}\n");
  const std::string header = text(
      "#pragma once\n#include \"runtime/main.h\"\n\nnamespace pipeline {\n\nextern const "
      "graphpipe::runtime::DeviceProgram ",
      name, ";\n// The stages that it holds.\n", stages, "\n}\n");
  const std::string main = text("#include \"programs/", name, ".h\"\n\nint main(int argc, char** argv) {\n",
                                held_array("stages", ranks, rank), "  return graphpipe::runtime::run_device(",
                                linked_program("stages", ranks, rank), ", argc, argv);\n}\n");
  return {{text("programs/", name, ".h"), first.of_model + header},
          {text("programs/", name, ".cpp"), first.of_plan + body},
          {text("programs/", name, "_main.cpp"), first.of_model + main}};
}

std::string held_array(std::string_view name, const Ranks& ranks, size_t rank) {
  std::string entries;
  for (StageId stage : ranks.stages[rank])
    entries += text(entries.empty() ? "" : ", ", "&pipeline::stage", stage, "::entry");
  return text("  const graphpipe::runtime::StageEntry* const ", name, "[] = {", entries, "};\n");
}

std::string linked_program(std::string_view name, const Ranks& ranks, size_t rank) {
  return text("{&pipeline::", device_name(rank), ", ", name, ", ", ranks.stages[rank].size(), "}");
}

SourceFile write_common_main(const Ranks& ranks, const std::string& first_line) {
  std::string includes, arrays, list;
  for (size_t rank = 0; rank < ranks.programs.size(); ++rank) {
    const std::string stages = text("stages", rank);
    includes += text("#include \"programs/", device_name(rank), ".h\"\n");
    arrays += held_array(stages, ranks, rank);
    list += text(rank ? ", " : "", linked_program(stages, ranks, rank));
  }
  return {"programs/device_main.cpp",
          text(first_line, includes, "\nint main(int argc, char** argv) {\n", arrays,
               "  const graphpipe::runtime::LinkedProgram programs[] = {", list,
               "};\n  return graphpipe::runtime::run_rank(programs, ", ranks.programs.size(), ", argc, argv);\n}\n")};
}

}  // namespace graphpipe::codegen
