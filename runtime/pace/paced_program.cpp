#include "runtime/pace/paced_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/error.h"
#include "runtime/tensors.h"
#include "support/text.h"

namespace graphpipe::runtime {
namespace {

// No stage function is ever called: the pacer replaces all of them.
constexpr int64_t kGradientElement = 4;

}  // namespace

PacedProgram::PacedProgram(const wire::PacePlan& plan, int32_t rank) : plan_(plan), rank_(rank) {
  add_tables();
  std::vector<int32_t> own;
  for (const wire::PacePlace& place : plan.places)
    if (place.rank == rank && std::ranges::find(own, place.stage) == own.end()) own.push_back(place.stage);
  for (const int32_t stage : own) add_stage(stage);
  for (const wire::PaceAction& action : plan.programs[static_cast<size_t>(rank)]) actions_.push_back(action.row);
}

void PacedProgram::add_tables() {
  for (const wire::PaceStage& stage : plan_.stages)
    stages_.push_back({.micro_batch = stage.micro_batch,
                       .replicas = stage.replicas,
                       .mode = stage.mode,
                       .slots = stage.slots,
                       .recompute = stage.recompute});
  for (const wire::PaceEdge& edge : plan_.edges) edges_.push_back({edge.from, edge.to});
  for (const wire::PacePlace& place : plan_.places) places_.push_back({place.stage, place.replica, place.rank});
  for (size_t group = 0; group < plan_.groups.size(); ++group)
    groups_.push_back({static_cast<int32_t>(group), plan_.groups[group].stages});
  table_ = {.plan_digest = plan_.digest.c_str(),
            .batch = plan_.batch,
            .device_count = static_cast<int32_t>(plan_.programs.size()),
            .stages = stages_,
            .edges = edges_,
            .placement = places_,
            .groups = groups_};
}

int64_t PacedProgram::sent(int64_t bytes) const {
  return bytes == 0 ? 0 : std::max<int64_t>(1, std::llround(static_cast<double>(bytes) * plan_.share));
}

int64_t PacedProgram::gradient_elements(int64_t bytes) const {
  return std::max<int64_t>(1, sent(bytes) / kGradientElement);
}

// [samples, factor] if it has a batch axis, otherwise [factor].
TensorRow PacedProgram::dims(int64_t factor, int64_t samples_power) {
  std::vector<DimRow>& list = dim_lists_.emplace_back();
  if (samples_power > 0) list.push_back({.factor = 1, .power = 1});
  list.push_back({.factor = factor, .power = 0});
  return {.type = ElementType::kUInt8, .dims = list, .batch_axis = samples_power > 0 ? 0 : -1};
}

void PacedProgram::add_stage(int32_t stage) {
  std::vector<BoundaryRow>& boundaries = boundaries_.emplace_back();
  std::vector<int32_t>& inputs = inputs_.emplace_back();
  int32_t slots = 0;
  for (size_t index = 0; index < plan_.edges.size(); ++index) {
    const wire::PaceEdge& edge = plan_.edges[index];
    if (edge.from != stage && edge.to != stage) continue;
    BoundaryRow row{.edge = static_cast<int32_t>(index),
                    .is_input = edge.to == stage,
                    .slot = slots++,
                    .gradient_count = edge.gradients,
                    .tensor = dims(sent(edge.bytes), edge.of_sample ? 1 : 0)};
    if (edge.gradients > 0) row.gradient_slot = slots;
    slots += edge.gradients;
    if (row.is_input) inputs.push_back(row.slot);
    boundaries.push_back(row);
  }
  std::vector<ParamRow>& params = params_.emplace_back();
  const auto add_param = [&](int64_t bytes, int32_t group) {
    if (bytes == 0) return;
    TensorRow tensor = dims(gradient_elements(bytes), 0);
    tensor.type = ElementType::kFloat32;
    params.push_back({.name = "paced", .tensor = tensor, .group = group});
  };
  add_param(plan_.stages[static_cast<size_t>(stage)].gradient_bytes, -1);
  for (const GroupRow& group : groups_)
    if (std::ranges::find(group.stages, stage) != group.stages.end())
      add_param(plan_.groups[static_cast<size_t>(group.group)].bytes, group.group);
  entries_.push_back(
      {.stage = stage, .slot_size = slots, .params = params, .boundaries = boundaries, .recompute_inputs = inputs});
  held_.push_back(&entries_.back());
}

DeviceProgram PacedProgram::program() const {
  return {.device = rank_, .plan = &table_, .actions = actions_, .stages = held_};
}

int64_t PacedProgram::nanoseconds(size_t action) const {
  const auto planned = plan_.programs[static_cast<size_t>(rank_)][action].nanoseconds;
  return std::llround(static_cast<double>(planned) * plan_.scale);
}

int64_t PacedProgram::start_nanoseconds() const {
  return std::llround(static_cast<double>(plan_.start_nanoseconds) * plan_.scale);
}

int64_t PacedProgram::largest_bytes() const {
  int64_t largest = 0;
  for (const StageEntry& entry : entries_) {
    const int64_t samples = plan_.stages[static_cast<size_t>(entry.stage)].micro_batch;
    for (const BoundaryRow& row : entry.boundaries) largest = std::max(largest, bytes_of(row.tensor, samples));
    for (const ParamRow& row : entry.params) largest = std::max(largest, bytes_of(row.tensor, 1));
  }
  return largest;
}

double PacedProgram::planned_of_sent(const ChannelKey& key) const {
  const auto index = static_cast<size_t>(key.index);
  const auto ratio = [](int64_t planned, int64_t sent) {
    return planned == 0 ? 1.0 : static_cast<double>(planned) / static_cast<double>(sent);
  };
  if (key.kind == ChannelKind::kReduce) {
    const int64_t bytes = plan_.stages[index].gradient_bytes;
    if (bytes > 0) return ratio(bytes, gradient_elements(bytes) * kGradientElement);
    return 1 / plan_.share;
  }
  if (key.kind == ChannelKind::kShare)
    return ratio(plan_.groups[index].bytes, gradient_elements(plan_.groups[index].bytes) * kGradientElement);
  return ratio(plan_.edges[index].bytes, sent(plan_.edges[index].bytes));
}

std::vector<ChannelPace> PacedProgram::paces(const std::vector<ChannelSpec>& specs) const {
  std::map<std::pair<int32_t, int32_t>, const wire::PaceLink*> ways;
  for (const wire::PaceLink& way : plan_.ways) ways[{way.from, way.to}] = &way;
  std::vector<ChannelPace> paces;
  for (const ChannelSpec& spec : specs) {
    ChannelPace& pace = paces.emplace_back();
    if (!carries_tensors(spec.key.kind)) continue;
    const auto way = ways.find({spec.from_rank, spec.to_rank});
    if (way == ways.end())
      fail(Code::kMalformedFile,
           text("the plan of the paced run has no way from rank ", spec.from_rank, " to rank ", spec.to_rank,
                ", but channel ", channel_kind_name(spec.key.kind), " ", spec.key.index, " goes there"),
           "start it with `graphpipe run PLAN --pace`, of the same version as the runtime");
    const double byte_scale = plan_.scale * planned_of_sent(spec.key);
    pace = {.link = way->second->link,
            .latency = way->second->latency * plan_.scale,
            .byte = way->second->byte * byte_scale};
    // Half of the messages of a ring are added, the others are copied.
    if (spec.key.kind == ChannelKind::kReduce)
      pace.work = plan_.stages[static_cast<size_t>(spec.key.index)].add_byte * byte_scale / 2;
  }
  return paces;
}

}  // namespace graphpipe::runtime
