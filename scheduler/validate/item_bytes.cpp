#include "scheduler/validate/item_bytes.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "wire/all_reduce.h"

namespace graphpipe::scheduler::check {
namespace {

/// Absurd prices are cut off here, so that sums of many of them do not overflow.
constexpr double kMaxBytes = 1e18;

Bytes whole(double bytes) { return Bytes(std::llround(std::min(bytes, kMaxBytes))); }

}  // namespace

Bytes message_bytes(const ir::StageEdge& edge, bool backward, Samples samples) {
  return whole((backward ? edge.gradient_bytes : edge.bytes).at(samples));
}

ItemBytes item_bytes(const StageGraph& graph, StageId id, Samples samples) {
  const ir::Stage& stage = graph.stages[id];
  ItemBytes item{.stash = whole(stage.stash_to_input_gradient.at(samples)),
                 .between_halves = whole(stage.stash_to_weight_gradient.at(samples)),
                 .made_by_first_half = whole(stage.kept_gradients.at(samples)),
                 .workspace = whole(stage.workspace.at(samples)),
                 .outputs = {},
                 .gradients = {}};
  Bytes counted_elsewhere;
  std::set<ir::PlanValueId> sent;
  for (const ir::StageEdge& edge : graph.edges) {
    const Bytes value = message_bytes(edge, false, samples);
    if (edge.to == id) {
      // What a chain passes on came in as a message of its own.
      const double made = edge.passed_gradients == 0
                              ? 1
                              : static_cast<double>(edge.gradient_count - edge.passed_gradients) /
                                    static_cast<double>(edge.gradient_count);
      item.gradients += whole(edge.gradient_bytes.at(samples) * made);
      if (edge.stashed_below) counted_elsewhere += value;
    } else if (edge.from == id && sent.insert(edge.value).second && !edge.passed_on) {
      item.outputs += value;
      if (edge.stashed_above) counted_elsewhere += value;
    }
  }
  item.stash = std::max(Bytes(0), item.stash - counted_elsewhere);
  return item;
}

Bytes bytes_of_reduction(const StageGraph& graph, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  Bytes of_others;
  for (const ir::SharedWeights& shared : graph.shared)
    if (std::ranges::find(shared.stages, id) != shared.stages.end())
      for (size_t other = 1; other < shared.stages.size(); ++other) of_others += shared.gradient_bytes;
  const auto replicas = static_cast<int64_t>(stage.choice.devices.size());
  const int64_t all = stage.trainable_weight_bytes.count;
  if (replicas < 2 || all == 0 || !stage.has_backward) return of_others;
  const int64_t bucket = std::min(all, wire::kChunkBytes * replicas), chunk = bucket / replicas;
  const int64_t moving = std::min(wire::kBucketsInFlight, (all + bucket - 1) / bucket);
  // A chunk is added while the next one comes, except between two replicas, which exchange one.
  const int64_t chunks = moving * (replicas == 2 ? 1 : 2);
  return std::max({of_others, Bytes(bucket), Bytes(chunks * chunk)});
}

}  // namespace graphpipe::scheduler::check
