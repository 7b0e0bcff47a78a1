#include "partitioner/heterogeneous/group_packing.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace graphpipe::partitioner {

namespace {

using ir::DeviceId;
using ir::StageId;
using Pair = std::pair<StageId, StageId>;

class Packing {
 public:
  Packing(const ir::Cluster& cluster, const ir::StageGraph& stages, ir::Assignment plan, size_t group)
      : traffic_(traffic_of(stages)),
        plan_(std::move(plan)),
        group_(group),
        cluster_of_(plan_.choice.size()),
        group_of_(plan_.choice.size()) {
    for (size_t first = 0; first < cluster.devices.size(); first += group)
      free_.push_back(std::min(group, cluster.devices.size() - first));
    for (size_t stage = 0; stage < cluster_of_.size(); ++stage) cluster_of_[stage] = stage;
    next_.resize(free_.size());
    for (size_t g = 0; g < next_.size(); ++g) next_[g] = g * group;
  }

  ir::Assignment run() {
    take_whole_groups();
    while (join_two()) {
    }
    std::vector<std::vector<StageId>> clusters = by_size();
    std::vector<StageId> rest;
    for (const std::vector<StageId>& cluster : clusters)
      if (!place(cluster)) rest.insert(rest.end(), cluster.begin(), cluster.end());
    std::ranges::stable_sort(rest, std::ranges::greater{}, [&](StageId stage) { return size_of(stage); });
    for (const StageId stage : rest)
      if (!place({stage})) scatter(stage);
    return std::move(plan_);
  }

 private:
  size_t size_of(StageId stage) const { return plan_.choice[stage].devices.size(); }
  bool is_large(StageId stage) const { return size_of(stage) > group_; }

  /// Stages of more devices than a group has: whole groups, and of another one what is left.
  void take_whole_groups() {
    size_t first = 0;
    for (const StageId stage : ids<StageId>(plan_.choice.size())) {
      if (!is_large(stage)) continue;
      std::vector<DeviceId> devices;
      const size_t whole = size_of(stage) / group_ * group_;
      for (; devices.size() < whole && first < free_.size() && free_[first] == group_; ++first)
        take(first, group_, devices);
      take_anywhere(stage, std::move(devices));
    }
  }

  void take(size_t group, size_t count, std::vector<DeviceId>& devices) {
    free_[group] -= count;
    for (; count > 0; --count) devices.push_back(DeviceId(next_[group]++));
  }

  /// What the stage still needs, of the last groups first.
  void take_anywhere(StageId stage, std::vector<DeviceId> devices) {
    for (size_t group = free_.size(); group-- > 0;)
      take(group, std::min(free_[group], size_of(stage) - devices.size()), devices);
    std::ranges::sort(devices);
    plan_.choice[stage].devices = std::move(devices);
  }
  void scatter(StageId stage) { take_anywhere(stage, {}); }

  /// Joins the two clusters with the most traffic between them that fit into a group together.
  bool join_two() {
    std::map<std::pair<size_t, size_t>, double> between;
    std::vector<size_t> size(cluster_of_.size(), 0);
    for (const StageId stage : ids<StageId>(cluster_of_.size())) size[cluster_of_[stage.index()]] += size_of(stage);
    for (const auto& [pair, bytes] : traffic_) {
      const size_t a = cluster_of_[pair.first.index()], b = cluster_of_[pair.second.index()];
      if (a != b && size[a] + size[b] <= group_) between[std::minmax(a, b)] += bytes;
    }
    if (between.empty()) return false;
    const auto largest = std::ranges::max_element(between, {}, [](const auto& each) { return each.second; });
    std::ranges::replace(cluster_of_, largest->first.second, largest->first.first);
    return true;
  }

  /// The stages of each cluster, the largest cluster first.
  std::vector<std::vector<StageId>> by_size() const {
    std::vector<std::vector<StageId>> clusters(cluster_of_.size());
    for (const StageId stage : ids<StageId>(cluster_of_.size()))
      if (!is_large(stage)) clusters[cluster_of_[stage.index()]].push_back(stage);
    std::ranges::stable_sort(clusters, std::ranges::greater{}, [&](const auto& cluster) { return size_of(cluster); });
    return clusters;
  }
  size_t size_of(const std::vector<StageId>& cluster) const {
    size_t size = 0;
    for (const StageId stage : cluster) size += size_of(stage);
    return size;
  }

  /// Into the group with which it exchanges most; of equal ones into the one that it fills best.
  bool place(const std::vector<StageId>& cluster) {
    const size_t needed = size_of(cluster);
    std::vector<double> bytes(free_.size(), 0);
    for (const auto& [pair, sum] : traffic_)
      for (const auto& [own, other] : {pair, Pair(pair.second, pair.first)})
        if (std::ranges::find(cluster, own) != cluster.end() && group_of_[other.index()])
          bytes[*group_of_[other.index()]] += sum;
    std::optional<size_t> best;
    for (size_t group = 0; group < free_.size(); ++group) {
      if (free_[group] < needed) continue;
      if (!best || std::pair(bytes[group], free_[*best]) > std::pair(bytes[*best], free_[group])) best = group;
    }
    if (!best) return false;
    for (const StageId stage : cluster) {
      std::vector<DeviceId> devices;
      take(*best, size_of(stage), devices);
      plan_.choice[stage].devices = std::move(devices);
      group_of_[stage.index()] = *best;
    }
    return true;
  }

  const std::map<Pair, double> traffic_;
  ir::Assignment plan_;
  const size_t group_;
  std::vector<size_t> cluster_of_;               // by stage: stages that come into one group
  std::vector<std::optional<size_t>> group_of_;  // by stage
  std::vector<size_t> free_, next_;              // by group: devices left, and the first of them
};

}  // namespace

std::map<std::pair<StageId, StageId>, double> traffic_of(const ir::StageGraph& stages) {
  std::map<Pair, double> bytes;
  const double batch = static_cast<double>(stages.batch.count);
  for (const ir::StageEdge& edge : stages.edges)
    bytes[{edge.from, edge.to}] += edge.bytes.at(batch) + edge.gradient_bytes.at(batch);
  return bytes;
}

ir::Assignment packed_into_groups(const ir::Cluster& cluster, const ir::StageGraph& stages, ir::Assignment plan,
                                  size_t group) {
  return Packing(cluster, stages, std::move(plan), group).run();
}

}  // namespace graphpipe::partitioner
