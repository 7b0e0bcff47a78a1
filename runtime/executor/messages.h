#pragma once
// The messages of a device's program: posted sends and receives, the memory that they read and fill, and when that
// memory is free again. Posting never waits.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/resolve.h"

namespace graphpipe::runtime {

/// The tensors of one item of a stage.
using Slot = std::vector<at::Tensor>;

class Messages {
 public:
  /// `meanwhile` is called during waits. All arguments must outlive it.
  Messages(const PlanTable& plan, const ResolvedProgram& program, Channels& channels, const Device& device,
           std::function<void()> meanwhile);

  /// Copies out the rows that a later send of the same transfer carries.
  void slice(const ResolvedAction& action, const Slot& slot);
  /// Posts a send; the send of the same transfer in the previous step must be done (wait()). The last send of a value
  /// that is recomputed removes it from the slot.
  void send(const ResolvedAction& action, Slot& slot, int64_t step);
  void receive(const ResolvedAction& action, int64_t step);
  /// Waits for the receives of the action's arrivals and puts the received tensors into the slot.
  void place_arrivals(const ResolvedAction& action, Slot& slot);
  void wait(size_t transfer);
  /// Waits until no send reads this slot of the instance any more.
  void wait_for_sends(size_t instance, int32_t slot);
  /// Releases tensors whose sends have completed.
  void release_sends();
  bool done(size_t transfer) const;
  /// Waits until no send is in flight.
  void finish();

 private:
  struct Assembly {
    std::vector<at::Tensor> parts;
    std::vector<size_t> transfers;  // receives that fill it
  };

  at::Tensor rows_to_send(const ResolvedAction& action, int32_t part, const Slot& slot) const;
  bool is_last_send(const ResolvedAction& action) const;
  void wait_for_transfers(const std::vector<size_t>& transfers);

  const PlanTable& plan_;
  const ResolvedProgram& program_;
  Channels& channels_;
  const Device& device_;
  std::function<void()> meanwhile_;
  std::vector<std::deque<PendingMessage>> pending_;  // by transfer, part
  /// By transfer, part: staging tensors for rows that are not contiguous in the item.
  std::vector<std::vector<at::Tensor>> staging_;
  std::vector<std::vector<at::Tensor>> slices_;                  // by transfer, part: for the send that follows
  std::vector<Assembly> assemblies_;                             // by arrival
  std::vector<std::vector<std::vector<size_t>>> sends_of_slot_;  // by instance, slot: transfers in flight
};

}  // namespace graphpipe::runtime
