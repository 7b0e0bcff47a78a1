#pragma once
// Shared by the scheduler's tests: reading the recorded schedules, and short ways to lists as text.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/schedule_csv.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/policies/policies.h"
#include "scheduler/simulate/simulate.h"
#include "scheduler/standalone/standalone_stages.h"
#include "tests/support/csv_text.h"
#include "tests/support/test_data.h"

namespace graphpipe::tests {

using namespace graphpipe::scheduler;

/// The text of a file of tests/data/schedules.
inline std::string read_schedule(const std::string& name) { return read_data("schedules/" + name); }

/// The same as JSON.
inline nlohmann::json read_json(const std::string& name) { return nlohmann::json::parse(read_schedule(name)); }

/// "F0 B0 F1": the compute actions of one stage with micro-batch numbers.
inline std::vector<std::string> stage_list(const StageGraph& graph, const Schedule& schedule, StageId stage) {
  std::vector<std::string> list;
  for (const ir::Program& program : schedule.programs)
    for (const Action& a : program.actions)
      if (ir::is_compute(a.op) && a.stage == static_cast<int32_t>(stage.index()))
        list.push_back(ir::action_name(a.op) +
                       std::to_string(a.range.first / graph.stages[stage].choice.micro_batch.count));
  return list;
}

/// PyTorch's compute-only tokens of a device: "2F0,2B0"; micro-batches of one sample.
inline std::string tokens(const ir::Program& program) {
  std::string out;
  for (const Action& a : program.actions)
    if (ir::is_compute(a.op))
      out += (out.empty() ? "" : ",") + std::to_string(a.stage) + ir::action_name(a.op) + std::to_string(a.range.first);
  return out;
}

/// A schedule from PyTorch's CSV; micro-batches of one sample.
inline Schedule parse_csv(const std::string& csv) {
  const Result<files::CsvSchedule> cells = files::parse_schedule_csv(csv);
  GP_CHECK(cells.ok());
  return files::orders_of(*cells).schedule;
}

inline double units(Ticks ticks) { return static_cast<double>(ticks.count) / kTicksPerUnit; }

/// The stage graph that a policy is defined on, with two chunks per device where it needs several.
inline StageGraph standalone_for(const Policy& policy, int ranks, int64_t micro_batches) {
  const bool v_shape = policy.shape == StageShape::kV, replicas = policy.shape == StageShape::kReplicas;
  StageGraph graph = chain_stages(
      {.ranks = replicas ? 1 : ranks, .chunks = v_shape ? 2 : 1, .micro_batches = micro_batches, .v_shape = v_shape});
  if (policy.asynchronous)
    for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1);
  if (replicas) {
    ir::StageChoice& choice = graph.stages[StageId(size_t{0})].choice;
    choice.mode = ir::ReplicaMode::kRoundRobin;
    for (int r = 1; r < ranks; ++r) choice.devices.push_back(ir::DeviceId(static_cast<size_t>(r)));
  }
  if (policy.shape != StageShape::kBidirectional) return graph;
  for (const StageId stage : graph.stage_ids()) {
    graph.stages[stage].choice.mode = ir::ReplicaMode::kRoundRobin;
    graph.stages[stage].choice.devices.push_back(ir::DeviceId(static_cast<size_t>(ranks) - 1 - stage.index()));
  }
  return graph;
}

/// In-flight numbers of plain 1F1B on a chain.
inline IdMap<StageId, Samples> depth_numbers(const StageGraph& graph) {
  IdMap<StageId, Samples> numbers(graph.stages.size());
  for (const StageId stage : graph.stage_ids())
    numbers[stage] = Samples(static_cast<int64_t>(graph.stages.size() - stage.index()));
  return numbers;
}

}  // namespace graphpipe::tests
