#include "runtime/executor/plan_channels.h"

#include <algorithm>
#include <map>

#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

// Losses, norms and names are small; parameters pass the gather in pieces.
constexpr int64_t kGatherBytes = 1 << 20;

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

void add_reductions(const PlanTable& plan, const Instance& instance, ChannelSet& channels) {
  const StageEntry& entry = *instance.entry;
  const std::vector<size_t> trainable = trainable_parameters(entry);
  int64_t largest = 0;
  for (size_t index : trainable) largest = std::max(largest, bytes_of(entry.params[index].tensor, 1));
  const int32_t root = device_of(plan, entry.stage, 0);
  const int32_t replicas = plan.stages[static_cast<size_t>(entry.stage)].replicas;
  for (int32_t replica = 1; replica < replicas && !trainable.empty(); ++replica) {
    if (instance.replica != 0 && instance.replica != replica) continue;
    const int32_t device = device_of(plan, entry.stage, replica);
    channels.add({ChannelKind::kReduceUp, entry.stage, replica, 0}, device, root, largest);
    channels.add({ChannelKind::kReduceDown, entry.stage, 0, replica}, root, device, largest);
  }
  for (size_t index : trainable) {
    const GroupRow* group = shared_group(plan, entry.params[index].group);
    if (group == nullptr || instance.replica != 0) continue;
    const int64_t bytes = bytes_of(entry.params[index].tensor, 1);
    const int32_t first = group->stages.front();
    for (int32_t stage : group->stages.subspan(1)) {
      if (entry.stage != first && entry.stage != stage) continue;
      const int32_t from = device_of(plan, stage, 0), to = device_of(plan, first, 0);
      channels.add({ChannelKind::kShareUp, group->group, stage, first}, from, to, bytes);
      channels.add({ChannelKind::kShareDown, group->group, first, stage}, to, from, bytes);
    }
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
  for (const Instance& instance : resolved.instances) add_reductions(*program.plan, instance, channels);
  for (int32_t device = 1; device < program.plan->device_count; ++device) {
    channels.add({ChannelKind::kGather, 0, device, 0}, device, 0, kGatherBytes);
    channels.add({ChannelKind::kTotal, 0, 0, device}, 0, device, kGatherBytes);
  }
  return channels.list();
}

}  // namespace graphpipe::runtime
