#include "cost/link_loads.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "support/integer_math.h"

namespace graphpipe::cost {

namespace {

using ir::DeviceId;
using ir::StageChoice;

/// Level, and the groups of the level below that the link leads from and to.
using LinkKey = std::tuple<size_t, size_t, size_t>;

/// Beyond so many parts of samples with one sender and one receiver, all replicas count as sending to all.
constexpr int64_t kMaxParts = 1024;

/// The link between two devices. Needs: the last level holds both.
LinkKey link_between(const ir::Cluster& cluster, DeviceId a, DeviceId b) {
  size_t below = 1, level = 0;
  for (;; ++level) {
    const auto size = static_cast<size_t>(std::max(1, cluster.levels[level].group));
    if (level + 1 == cluster.levels.size() || a.index() / size == b.index() / size) break;
    below = size;
  }
  return {level, a.index() / below, b.index() / below};
}

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
      for (const DeviceId b : to.devices) add(link_between(cluster, a, b), share);
    return;
  }
  for (int64_t sample = 0; sample < period;) {
    const Share sender = share_at(from, batch, sample), receiver = share_at(to, batch, sample);
    const int64_t end = std::min({sender.end, receiver.end, period});
    const double share = static_cast<double>(end - sample) / static_cast<double>(period);
    add(link_between(cluster, from.devices[sender.replica], to.devices[receiver.replica]), share);
    sample = end;
  }
}

/// Whether all messages between these devices stay within one group of the innermost level.
bool are_neighbours(const ir::Cluster& cluster, const StageChoice& a, const StageChoice& b) {
  const auto size = static_cast<size_t>(std::max(1, cluster.levels.front().group));
  const size_t group = a.devices.front().index() / size;
  const auto is_there = [&](DeviceId device) { return device.index() / size == group; };
  return std::ranges::all_of(a.devices, is_there) && std::ranges::all_of(b.devices, is_there);
}

}  // namespace

std::vector<LinkLoad> shared_link_loads(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  if (cluster.levels.size() < 2) return {};
  std::map<LinkKey, LinkLoad> loads;
  const auto add = [&](const LinkKey& key, const LinkLoad::Part& part) {
    if (part.seconds <= 0) return;
    loads[key].seconds += part.seconds;
    loads[key].parts.push_back(part);
  };
  for (const ir::StageEdge& edge : graph.edges) {
    if (edge.batch != ir::BatchKind::kAxis) continue;
    const StageChoice &from = graph.stages[edge.from].choice, &to = graph.stages[edge.to].choice;
    if (are_neighbours(cluster, from, to)) continue;
    const double items = static_cast<double>(micro_batch_count(graph, edge.to));
    const double samples = static_cast<double>(graph.batch.count) / items;
    std::map<LinkKey, double> shares;
    for_each_link(cluster, from, to, graph.batch.count,
                  [&](const LinkKey& key, double share) { shares[key] += share; });
    for (const auto& [key, share] : shares) {
      const auto [level, source, sink] = key;
      if (level == 0) continue;
      const double seconds = share * items / cluster.levels[level].bandwidth.count;
      add(key, {.from = edge.from, .to = edge.to, .seconds = seconds * edge.bytes.at(samples)});
      if (edge.carries_gradient())
        add({level, sink, source}, {.from = edge.to,
                                    .to = edge.from,
                                    .is_gradient = true,
                                    .seconds = seconds * edge.gradient_bytes.at(samples)});
    }
  }
  std::vector<LinkLoad> result;
  for (auto& [key, load] : loads) result.push_back(std::move(load));
  return result;
}

}  // namespace graphpipe::cost
