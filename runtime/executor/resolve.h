#pragma once
// A device's program with everything resolved that is known before the first step: which item an action belongs to,
// which tensors it waits for, which channel a transfer uses, when an item's slot is free. Rejects programs that the
// executor could not run to completion.

#include <cstdint>
#include <vector>

#include "runtime/program.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// A stage's replica on this device.
struct Instance {
  const StageEntry* entry = nullptr;
  int32_t replica = 0;
  bool operator==(const Instance&) const = default;
};

/// A value, or a gradient, of an item, assembled from received messages.
struct Arrival {
  const BoundaryRow* boundary = nullptr;
  wire::SampleRange item;
  int32_t first_slot = 0;  // slot of part 0
  int32_t parts = 1;
};

/// A send or a receive.
struct Transfer {
  const BoundaryRow* boundary = nullptr;
  ChannelKey key;
  int32_t peer_rank = 0;
  /// The samples of the item on this side; the message's are in the action.
  wire::SampleRange item;
  int32_t first_slot = 0;
  int32_t parts = 1;
  /// Receives: index into ResolvedProgram::arrivals.
  size_t arrival = 0;
};

struct ResolvedAction {
  wire::ActionRow row;
  size_t instance = 0;
  /// Sends, receives and slices: index into ResolvedProgram::transfers.
  size_t transfer = 0;
  /// F, B and I: arrivals that are put into the slot first. CONCAT: the arrival that it puts there.
  std::vector<size_t> arrivals;
  /// The item's last action: its slot is cleared afterwards.
  bool ends_item = false;
  /// First sample of the update that the item belongs to, or that is reduced or stepped.
  int64_t update = 0;
  /// B and W: the last that makes gradients of its update.
  bool ends_gradients = false;
  /// Steps: a later action reads the version that precedes the new one.
  bool keeps_version = false;
};

struct ResolvedProgram {
  std::vector<Instance> instances;
  std::vector<ResolvedAction> actions;
  std::vector<Arrival> arrivals;
  std::vector<Transfer> transfers;
  /// All channels with an end on this rank: transfers and collectives.
  std::vector<ChannelSpec> channels;
};

/// The device that holds a stage's replica. Throws RunError (kBadSchedule) if none does.
int32_t device_of(const PlanTable& plan, int32_t stage, int32_t replica);

/// The row of a stage's shared group, or null if no other stage holds it.
const GroupRow* shared_group(const PlanTable& plan, int32_t group);

/// "F of samples [4,8) (micro-batch 1) of stage 2, replica 0".
std::string describe(const PlanTable& plan, const wire::ActionRow& row);

/// Throws RunError (kBadSchedule).
ResolvedProgram resolve(const DeviceProgram& program);

}  // namespace graphpipe::runtime
