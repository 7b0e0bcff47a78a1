#include "driver/report/traffic.h"

#include <algorithm>
#include <cmath>

namespace graphpipe::driver {
namespace {

using ir::Action;

double message_bytes(const ir::StageGraph& graph, ir::DeviceId device, const Action& action) {
  const ir::StageEdge& edge = graph.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
  const bool backward = ir::is_backward_message(action.op);
  const ir::Stage& receiver = graph.stages[backward ? edge.from : edge.to];
  if (receiver.choice.devices[static_cast<size_t>(action.peer_replica)] == device) return 0;
  return (backward ? edge.gradient_bytes : edge.bytes).at(Samples(action.range.size()));
}

double summed_bytes(const ir::StageGraph& graph, const Action& action) {
  const ir::StageId id(static_cast<size_t>(action.stage));
  const ir::Stage& stage = graph.stages[id];
  if (stage.choice.devices.size() > 1) return static_cast<double>(stage.trainable_weight_bytes.count);
  double bytes = 0;
  for (const ir::SharedWeights& shared : graph.shared)
    if (std::ranges::find(shared.stages, id) != shared.stages.end())
      bytes += static_cast<double>(shared.gradient_bytes.count);
  return bytes;
}

}  // namespace

Traffic traffic_of(const ir::StageGraph& graph, const ir::Schedule& schedule) {
  Traffic traffic;
  const auto of_step = [&](double bytes) {
    return Bytes(std::llround(bytes / static_cast<double>(std::max<int64_t>(1, graph.batches))));
  };
  for (const ir::Program& program : schedule.programs) {
    double sent = 0, summed = 0;
    for (const Action& action : program.actions) {
      if (ir::is_send(action.op)) sent += message_bytes(graph, program.device, action);
      if (action.op == ir::ActionOp::kReduceGradient) summed += summed_bytes(graph, action);
    }
    traffic.messages.push_back({.device = program.device.index(), .bytes = of_step(sent)});
    traffic.sums.push_back({.device = program.device.index(), .bytes = of_step(summed)});
  }
  return traffic;
}

Bytes total_of(const std::vector<DeviceBytes>& devices) {
  Bytes total(0);
  for (const DeviceBytes& each : devices) total = total + each.bytes;
  return total;
}

}  // namespace graphpipe::driver
