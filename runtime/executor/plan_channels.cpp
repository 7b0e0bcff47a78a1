#include "runtime/executor/plan_channels.h"

#include <algorithm>
#include <map>

#include "runtime/collectives/reduce.h"
#include "runtime/collectives/replica_gather.h"
#include "runtime/collectives/weight_exchange.h"
#include "runtime/server/served_updates.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

// Losses, norms and names are small; parameters are gathered in pieces.
constexpr int64_t kGatherBytes = 1 << 20;
// Two numbers for each of 2048 channels; more pass in pieces.
constexpr int64_t kSumsBytes = 1 << 15;

class ChannelSet {
 public:
  explicit ChannelSet(int32_t device) : device_(device) {}

  void add(const ChannelKey& key, int32_t from_rank, int32_t to_rank, int64_t bytes) {
    if (from_rank != device_ && to_rank != device_) return;
    ChannelSpec& spec = specs_[key];
    spec = {key, from_rank, to_rank, std::max(spec.largest_bytes, bytes)};
  }
  std::vector<ChannelSpec> list() const {
    std::vector<ChannelSpec> out;
    for (const auto& [key, spec] : specs_) out.push_back(spec);
    return out;
  }

 private:
  int32_t device_;
  std::map<ChannelKey, ChannelSpec> specs_;
};

void add_transfers(const DeviceProgram& program, const ResolvedProgram& resolved, ChannelSet& channels) {
  for (const ResolvedAction& action : resolved.actions) {
    const bool send = wire::is_send(action.row.op);
    if (!send && !wire::is_receive(action.row.op)) continue;
    const Transfer& transfer = resolved.transfers[action.transfer];
    const int64_t bytes = bytes_of(transfer.boundary->tensor, action.row.range.size());
    channels.add(transfer.key, send ? program.device : transfer.peer_rank, send ? transfer.peer_rank : program.device,
                 bytes);
  }
}

void add_ring(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  const int32_t stage = instance.entry->stage;
  const RingPosition place = ring_position(plan, stage, instance.replica);
  int64_t largest = 0;
  for (const Bucket& bucket : buckets_of(*instance.entry, place.size))
    largest = std::max(largest, (bucket.elements / place.size + 1) * element_size(bucket.type));
  if (largest == 0) return;
  const int32_t own = device_of(plan, stage, instance.replica);
  channels.add(ring_channel(stage, place.replica, place.next), own, device_of(plan, stage, place.next), largest);
  channels.add(ring_channel(stage, place.previous, place.replica), device_of(plan, stage, place.previous), own,
               largest);
}

void add_sums(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  const int32_t stage = instance.entry->stage, own = device_of(plan, stage, instance.replica);
  if (!exchanges_sums(plan, *instance.entry)) return;
  for (int32_t other = 0; other < plan.stages[static_cast<size_t>(stage)].replicas; ++other) {
    if (other == instance.replica) continue;
    const int32_t theirs = device_of(plan, stage, other);
    channels.add(sums_channel(stage, instance.replica, other), own, theirs, kSumsBytes);
    channels.add(sums_channel(stage, other, instance.replica), theirs, own, kSumsBytes);
  }
}

void add_weights(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  const int32_t stage = instance.entry->stage, own = device_of(plan, stage, instance.replica);
  const StageRow& row = plan.stages[static_cast<size_t>(stage)];
  const int64_t largest = row.shards_optimizer ? largest_weight_message(*instance.entry, row.replicas) : 0;
  for (int32_t other = 0; largest > 0 && other < row.replicas; ++other) {
    if (other == instance.replica) continue;
    const int32_t theirs = device_of(plan, stage, other);
    channels.add(weights_channel(stage, instance.replica, other), own, theirs, largest);
    channels.add(weights_channel(stage, other, instance.replica), theirs, own, largest);
  }
}

void add_server(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  int64_t largest = 0;
  for (const size_t index : trainable_parameters(*instance.entry))
    largest = std::max(largest, bytes_of(instance.entry->params[index].tensor, 1));
  for (const PlacementRow& row : plan.placement) {
    if (row.device == plan.server) continue;
    channels.add(server_channel(row.replica, /*to_server=*/true), row.device, plan.server, largest);
    channels.add(server_channel(row.replica, /*to_server=*/false), plan.server, row.device, largest);
  }
}

void add_shares(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  for (const size_t index : trainable_parameters(*instance.entry)) {
    const ParamRow& row = instance.entry->params[index];
    const GroupRow* group = shared_group(plan, row.group);
    if (group == nullptr) continue;
    for (const ShareLink& link : share_links(plan, *group, instance.entry->stage, instance.replica))
      channels.add(link.key, link.from_rank, link.to_rank, bytes_of(row.tensor, 1));
  }
}

}  // namespace

std::vector<size_t> trainable_parameters(const StageEntry& entry) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < entry.params.size(); ++i)
    if (entry.params[i].role == ParamRole::kTrainable) indices.push_back(i);
  return indices;
}

std::vector<ChannelSpec> plan_channels(const DeviceProgram& program, const ResolvedProgram& resolved) {
  ChannelSet channels(program.device);
  add_transfers(program, resolved, channels);
  for (const Instance& instance : resolved.instances) {
    if (program.plan->server >= 0) {
      add_server(*program.plan, instance, channels);
    } else {
      add_ring(*program.plan, instance, channels);
      add_weights(*program.plan, instance, channels);
    }
    add_shares(*program.plan, instance, channels);
    add_sums(*program.plan, instance, channels);
  }
  for (int32_t device = 1; device < program.plan->device_count; ++device) {
    channels.add({ChannelKind::kGather, 0, device, 0}, device, 0, kGatherBytes);
    channels.add({ChannelKind::kTotal, 0, 0, device}, 0, device, kGatherBytes);
  }
  return channels.list();
}

}  // namespace graphpipe::runtime
