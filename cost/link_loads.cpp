#include "cost/link_loads.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "support/integer_math.h"

namespace graphpipe::cost {

namespace {

using ir::DeviceId;
using ir::StageChoice;

/// Beyond so many parts of samples with one sender and one receiver, all replicas count as sending to all.
constexpr int64_t kMaxParts = 1024;

/// The replica that has this sample of a step, and the end of its share.
struct Share {
  size_t replica = 0;
  int64_t end = 0;
};

Share share_at(const StageChoice& choice, int64_t batch, int64_t sample) {
  const auto replicas = static_cast<int64_t>(choice.devices.size());
  const int64_t index = sample / choice.micro_batch.count, first = index * choice.micro_batch.count;
  const int64_t size = std::min(choice.micro_batch.count, batch - first);
  if (choice.mode == ir::ReplicaMode::kRoundRobin) return {static_cast<size_t>(index % replicas), first + size};
  // As ir::item_range has it: the first replica whose share ends behind the sample.
  int64_t replica = (sample - first) * replicas / size;
  while ((replica + 1) * size / replicas <= sample - first) ++replica;
  return {static_cast<size_t>(replica), first + (replica + 1) * size / replicas};
}

/// Calls `add` with each link from the one stage's devices to the other's and the share of all samples that it carries.
template <typename Add>
void for_each_link(const ir::Cluster& cluster, const StageChoice& from, const StageChoice& to, int64_t batch, Add add) {
  // After so many samples the same replicas meet again.
  const int64_t one = from.samples_of_turns(), other = to.samples_of_turns();
  const int64_t turns = one / std::gcd(one, other);
  const int64_t period = turns > batch / other ? batch : turns * other;
  const auto parts_of = [&](const StageChoice& choice) { return ceil_div(period, choice.item_samples().count); };
  if (parts_of(from) + parts_of(to) > kMaxParts) {
    const double share = 1 / static_cast<double>(from.devices.size() * to.devices.size());
    for (const DeviceId a : from.devices)
      for (const DeviceId b : to.devices) add(cluster.link_between(a, b), share);
    return;
  }
  for (int64_t sample = 0; sample < period;) {
    const Share sender = share_at(from, batch, sample), receiver = share_at(to, batch, sample);
    const int64_t end = std::min({sender.end, receiver.end, period});
    const double share = static_cast<double>(end - sample) / static_cast<double>(period);
    add(cluster.link_between(from.devices[sender.replica], to.devices[receiver.replica]), share);
    sample = end;
  }
}

using Shares = std::vector<std::pair<ir::LinkId, double>>;

/// The links from the one stage's devices to the other's and the share of all samples that each carries, ascending.
Shares shares_of_links(const ir::Cluster& cluster, const StageChoice& from, const StageChoice& to, int64_t batch) {
  Shares all, shares;
  for_each_link(cluster, from, to, batch, [&](const ir::LinkId& link, double share) {
    if (link.from != link.to) all.emplace_back(link, share);  // else both are on one device
  });
  std::ranges::sort(all);
  for (const auto& [link, share] : all)
    if (shares.empty() || shares.back().first != link) shares.emplace_back(link, share);
    else shares.back().second += share;
  return shares;
}

/// The parts of each link in their order. Vectors throughout: planners ask for the loads of every plan that they try.
std::vector<LinkLoad> grouped(std::vector<std::pair<ir::LinkId, LinkLoad::Part>> parts) {
  std::ranges::stable_sort(parts, {}, &std::pair<ir::LinkId, LinkLoad::Part>::first);
  std::vector<LinkLoad> loads;
  for (const auto& [link, part] : parts) {
    if (loads.empty() || loads.back().link != link) loads.push_back({.link = link, .seconds = 0, .parts = {}});
    loads.back().seconds += part.seconds;
    loads.back().parts.push_back(part);
  }
  return loads;
}

}  // namespace

std::vector<LinkLoad> link_loads(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  if (cluster.levels.empty()) return {};
  std::vector<std::pair<ir::LinkId, LinkLoad::Part>> parts;
  const auto add = [&](const ir::LinkId& link, const LinkLoad::Part& part) {
    if (part.seconds > 0) parts.emplace_back(link, part);
  };
  // Those of the edge before: all edges between two stages follow each other.
  Shares shares;
  std::pair<ir::StageId, ir::StageId> ends;
  for (const ir::StageEdge& edge : graph.edges) {
    if (edge.batch != ir::BatchKind::kAxis) continue;
    if (std::exchange(ends, {edge.from, edge.to}) != ends)
      shares =
          shares_of_links(cluster, graph.stages[edge.from].choice, graph.stages[edge.to].choice, graph.batch.count);
    const double items = static_cast<double>(micro_batch_count(graph, edge.to));
    const double samples = static_cast<double>(graph.batch.count) / items;
    for (const auto& [link, share] : shares) {
      const double seconds = share * items / cluster.levels[link.level].bandwidth.count;
      add(link, {.from = edge.from, .to = edge.to, .seconds = seconds * edge.bytes.at(samples)});
      if (edge.carries_gradient())
        add(link.reversed(), {.from = edge.to,
                              .to = edge.from,
                              .is_gradient = true,
                              .seconds = seconds * edge.gradient_bytes.at(samples)});
    }
  }
  return grouped(std::move(parts));
}

std::map<ir::LinkId, std::vector<ir::StageId>> shared_rings(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  std::map<ir::LinkId, std::vector<ir::StageId>> rings;
  if (cluster.levels.size() < 2) return rings;
  for (const ir::StageId stage : graph.stage_ids()) {
    if (!graph.stages[stage].is_trained()) continue;
    std::vector<DeviceId> ring = graph.stages[stage].choice.devices;
    std::ranges::sort(ring);
    for (size_t i = 0; i < ring.size(); ++i) {
      const ir::LinkId link = cluster.link_between(ring[i], ring[(i + 1) % ring.size()]);
      if (link.level == 0) continue;
      std::vector<ir::StageId>& stages = rings[link];
      if (stages.empty() || stages.back() != stage) stages.push_back(stage);
    }
  }
  std::erase_if(rings, [](const auto& ring) { return ring.second.size() < 2; });
  return rings;
}

}  // namespace graphpipe::cost
