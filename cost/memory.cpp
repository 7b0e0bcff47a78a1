#include "cost/memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "cost/stage_cost.h"
#include "support/bits.h"
#include "support/integer_math.h"
#include "wire/all_reduce.h"

namespace graphpipe::cost {

namespace {

using ir::StageId;

constexpr double kMaxBytes = 1e18;

/// Rounded up; absurdly large costs saturate instead of overflowing.
Bytes to_bytes(double bytes) { return Bytes(static_cast<int64_t>(std::ceil(std::min(bytes, kMaxBytes)))); }

/// Items on one replica when all replicas together hold `samples` samples.
int64_t items_of(const ir::StageChoice& choice, int64_t samples) {
  const int64_t items = ceil_div(samples, choice.micro_batch.count);
  const int64_t replicas = static_cast<int64_t>(choice.devices.size());
  return choice.mode == ir::ReplicaMode::kRoundRobin ? ceil_div(items, replicas) : items;
}

/// `in_flight`: of the stage, and of the stage with the most.
int64_t held_versions(ir::WeightVersions versions, const ir::StageChoice& choice, Samples in_flight, Samples largest) {
  switch (versions) {
    case ir::WeightVersions::kOne:
      return 1;
    case ir::WeightVersions::kTwo:
      return 2;
    case ir::WeightVersions::kPerItem:
      return std::max<int64_t>(1, items_of(choice, in_flight.count));
    case ir::WeightVersions::kPerItemOfFirst:
      return std::max<int64_t>(1, ceil_div(largest.count, choice.samples_of_turns()));
  }
  return 1;
}

Bytes input_bytes(const ir::StageGraph& graph, const StageBoundary& boundary, Samples samples) {
  Bytes total;
  for (const ir::EdgeId edge : boundary.in) total += bytes_at(graph.edges[edge].bytes, samples);
  return total;
}

/// Bytes of the edge's gradients that the stage at its lower end computes, without those that it only passes on.
double own_gradients(const ir::StageEdge& edge, Samples samples) {
  const double all = edge.gradient_bytes.at(samples);
  if (edge.passed_gradients == 0) return all;
  return all * (edge.gradient_count - edge.passed_gradients) / edge.gradient_count;
}

Bytes one_gradient(const ir::StageEdge& edge, Samples samples) {
  return to_bytes(edge.gradient_bytes.at(samples) / std::max(edge.gradient_count, 1));
}

/// One gradient of each distinct value that crosses the stage's boundary.
Bytes boundary_gradients(const ir::StageGraph& graph, const StageBoundary& boundary, Samples samples) {
  std::map<ir::PlanValueId, Bytes> sent;
  Bytes total;
  for (const ir::EdgeId edge : boundary.in) total += one_gradient(graph.edges[edge], samples);
  for (const ir::EdgeId edge : boundary.out) {
    if (graph.edges[edge].passed_on) continue;
    Bytes& bytes = sent[graph.edges[edge].value];
    bytes = std::max(bytes, one_gradient(graph.edges[edge], samples));
  }
  for (const auto& [value, bytes] : sent) total += bytes;
  return total;
}

StageBoundary boundary_of(const ir::StageGraph& graph, StageId stage) {
  StageBoundary boundary;
  std::set<ir::PlanValueId> seen;
  for (const ir::EdgeId id : graph.edge_ids()) {
    const ir::StageEdge& edge = graph.edges[id];
    if (edge.to == stage) boundary.in.push_back(id);
    if (edge.from != stage) continue;
    boundary.out.push_back(id);
    if (seen.insert(edge.value).second) boundary.distinct_out.push_back(id);
  }
  return boundary;
}

/// Items of one replica whose gradients over `edge` may wait here at the same time.
int64_t gradient_items(const ir::StageGraph& graph, const StageBoundary& boundary, const ir::StageEdge& edge,
                       const IdMap<StageId, Samples>& in_flight) {
  const ir::StageChoice& choice = graph.stages[edge.from].choice;
  const ir::StageChoice& reader = graph.stages[edge.to].choice;
  int64_t samples = in_flight[edge.from].count;
  const bool only_reader = std::all_of(boundary.out.begin(), boundary.out.end(),
                                       [&](ir::EdgeId other) { return graph.edges[other].to == edge.to; });
  // The backwards of one round of the reader immediately follow each other.
  const int64_t arriving = std::max(choice.micro_batch.count, reader.micro_batch.count * reader.k);
  if (only_reader && reader.micro_batch <= choice.micro_batch)
    samples = std::min(samples, std::max<int64_t>(0, samples - in_flight[edge.to].count) + arriving);
  return std::max<int64_t>(1, items_of(choice, samples));
}

}  // namespace

Bytes bytes_at(const ir::SampleFunction& price, Samples samples) {
  return Bytes(std::llround(std::min(price.at(samples), kMaxBytes)));
}

IdMap<StageId, StageBoundary> boundaries(const ir::StageGraph& graph) {
  IdMap<StageId, StageBoundary> result(graph.stages.size());
  std::set<ir::PlanValueId> seen;  // values of the current source stage: edges are sorted by source
  StageId from;
  for (const ir::EdgeId id : graph.edge_ids()) {
    const ir::StageEdge& edge = graph.edges[id];
    if (edge.from != from) seen.clear();
    from = edge.from;
    result[edge.to].in.push_back(id);
    result[edge.from].out.push_back(id);
    if (seen.insert(edge.value).second) result[edge.from].distinct_out.push_back(id);
  }
  return result;
}

ItemBytes item_bytes(const ir::StageGraph& graph, const StageBoundary& boundary, StageId id, Samples samples) {
  const ir::Stage& stage = graph.stages[id];
  ItemBytes bytes;
  Bytes counted;  // boundary values that the stash holds
  for (const ir::EdgeId edge : boundary.in) {
    bytes.gradients_of_inputs += Bytes(std::llround(std::min(own_gradients(graph.edges[edge], samples), kMaxBytes)));
    if (graph.edges[edge].stashed_below) counted += bytes_at(graph.edges[edge].bytes, samples);
  }
  for (const ir::EdgeId edge : boundary.distinct_out) {
    if (graph.edges[edge].passed_on) continue;  // counted where it entered
    bytes.outputs += bytes_at(graph.edges[edge].bytes, samples);
    if (graph.edges[edge].stashed_above) counted += bytes_at(graph.edges[edge].bytes, samples);
  }
  bytes.stash = bytes_at(stage.stash_to_input_gradient, samples);
  bytes.stash = bytes.stash - std::min(counted, bytes.stash);
  bytes.kept = bytes_at(stage.stash_to_weight_gradient, samples);
  bytes.kept_gradients = bytes_at(stage.kept_gradients, samples);
  bytes.workspace = bytes_at(stage.workspace, samples);
  return bytes;
}

namespace {

MemoryParts parts_of(const ir::StageGraph& graph, const StageBoundary& boundary, StageId id, Samples in_flight,
                     Samples largest) {
  const ir::Stage& stage = graph.stages[id];
  const Samples samples = stage.choice.item_samples();
  const ItemBytes item = item_bytes(graph, boundary, id, samples);
  MemoryParts parts;
  parts.weights = stage.weight_bytes;
  parts.gradients = stage.trainable_weight_bytes;
  const double state = graph.optimizer_state_per_weight_byte * static_cast<double>(stage.trainable_weight_bytes.count);
  const double replicas = static_cast<double>(stage.choice.devices.size());
  parts.optimizer = to_bytes(stage.choice.shard_optimizer_state ? state / replicas : state);
  Bytes per_item = input_bytes(graph, boundary, samples) + item.outputs;
  parts.working = item.workspace + item.kept_gradients;
  (stage.choice.recompute ? parts.working : per_item) += item.stash;
  const int64_t items = items_of(stage.choice, in_flight.count);
  parts.stash = to_bytes(static_cast<double>(items) * static_cast<double>(per_item.count));
  parts.versions = to_bytes(static_cast<double>(held_versions(graph.versions, stage.choice, in_flight, largest) - 1) *
                            static_cast<double>(stage.trainable_weight_bytes.count));
  parts.boundary = boundary_gradients(graph, boundary, samples);
  parts.reduction = reduction_bytes(graph, id);
  if (stage.is_trained())
    parts.update = stage.update_scratch + (graph.versions == ir::WeightVersions::kOne ? Bytes(0) : parts.stash);
  return parts;
}

/// Which stages a stage holds back: those from which edges with gradients lead to it, by any path, so that their
/// backwards wait for its own, and their forwards for those.
class HeldBack {
 public:
  explicit HeldBack(const ir::StageGraph& graph) : above_(graph.stages.size(), graph.stages.size()) {
    // Edges are sorted by source and lead to later stages: what precedes a source is complete.
    for (const ir::StageEdge& edge : graph.edges) {
      if (edge.gradient_count == 0) continue;
      above_.merge(edge.to.index(), edge.from.index());
      above_.insert(edge.to.index(), edge.from.index());
    }
  }
  bool holds(StageId reader, StageId producer) const { return above_.contains(reader.index(), producer.index()); }

 private:
  BitRows above_;
};

Bytes ahead_of(const ir::StageGraph& graph, const StageBoundary& boundary, StageId id,
               const IdMap<StageId, Samples>& in_flight, const HeldBack& held_back) {
  const ir::StageChoice& choice = graph.stages[id].choice;
  const Samples samples = choice.item_samples();
  const int64_t own = items_of(choice, in_flight[id].count);
  // parts_of has counted one gradient of each boundary value already.
  double ahead = -static_cast<double>(boundary_gradients(graph, boundary, samples).count);
  for (const ir::EdgeId edge_id : boundary.in) {
    const ir::StageEdge& edge = graph.edges[edge_id];
    const int64_t above = held_back.holds(id, edge.from) ? in_flight[edge.from].count : graph.batch.count;
    const int64_t more = std::max<int64_t>(0, items_of(choice, std::min(above, graph.batch.count)) - own);
    ahead += static_cast<double>(more) * edge.bytes.at(samples) + own_gradients(edge, samples);
  }
  for (const ir::EdgeId edge : boundary.out)
    ahead += static_cast<double>(gradient_items(graph, boundary, graph.edges[edge], in_flight)) *
             graph.edges[edge].gradient_bytes.at(samples);
  return to_bytes(std::max(0.0, ahead));
}

}  // namespace

Bytes reduction_bytes(const ir::StageGraph& graph, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  int64_t copies = 0, ring = 0;
  for (const ir::SharedWeights& shared : graph.shared)
    if (std::find(shared.stages.begin(), shared.stages.end(), id) != shared.stages.end())
      copies += shared.gradient_bytes.count * (static_cast<int64_t>(shared.stages.size()) - 1);
  const auto replicas = static_cast<int64_t>(stage.choice.devices.size());
  const int64_t gradients = stage.trainable_weight_bytes.count;
  if (stage.has_backward && replicas > 1 && gradients > 0) {
    const int64_t bucket = std::min(gradients, replicas * wire::kChunkBytes);
    const int64_t buckets = std::min(wire::kBucketsInFlight, ceil_div(gradients, bucket));
    // Received chunks wait next to the gradients that they are added to: one round of them with two replicas, two with
    // more.
    ring = std::max(bucket, buckets * std::min<int64_t>(replicas - 1, 2) * (bucket / replicas));
  }
  return Bytes(std::max(copies, ring));
}

MemoryParts stage_memory(const ir::StageGraph& graph, StageId id, Samples in_flight) {
  return parts_of(graph, boundary_of(graph, id), id, in_flight, in_flight);
}

IdMap<ir::DeviceId, Bytes> peak_memory(const ir::StageGraph& graph, const ir::Cluster& cluster,
                                       const IdMap<StageId, Samples>& in_flight) {
  IdMap<ir::DeviceId, Bytes> peak(cluster.devices.size());
  const IdMap<StageId, StageBoundary> boundary = boundaries(graph);
  const HeldBack held_back(graph);
  Samples largest;
  for (const Samples samples : in_flight) largest = std::max(largest, samples);
  for (StageId stage : graph.stage_ids()) {
    const Bytes bytes = parts_of(graph, boundary[stage], stage, in_flight[stage], largest).total() +
                        ahead_of(graph, boundary[stage], stage, in_flight, held_back);
    for (ir::DeviceId device : graph.stages[stage].choice.devices) peak[device] += bytes;
  }
  return peak;
}

Bytes memory_shortfall(const ir::StageGraph& graph, const ir::Cluster& cluster,
                       const IdMap<StageId, Samples>& in_flight) {
  const IdMap<ir::DeviceId, Bytes> peak = peak_memory(graph, cluster, in_flight);
  Bytes worst(std::numeric_limits<int64_t>::min());
  for (ir::DeviceId device : ids<ir::DeviceId>(peak.size()))
    worst = std::max(worst, peak[device] - cluster.devices[device].memory);
  return worst;
}

}  // namespace graphpipe::cost
