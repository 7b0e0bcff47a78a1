#pragma once
// Where replicas divide the optimizer's state, each has updated its part of every parameter: it sends that part to all
// others, and receives theirs into the weights. The messages move while the rank goes on; weights are whole before the
// next function of the stage reads them.

#include <deque>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

ChannelKey weights_channel(int32_t stage, int32_t from, int32_t to);

/// Parameters, by their places in the stage, whose parts travel in one message: a large one alone, small ones together.
using SentTogether = std::vector<size_t>;
std::vector<SentTogether> weight_messages(const StageEntry& entry);
/// Bytes of the largest message.
int64_t largest_weight_message(const StageEntry& entry, int32_t replicas);

class WeightExchange {
 public:
  /// All arguments must outlive it. Needs: the state owns parts of its parameters.
  WeightExchange(const PlanTable& plan, Channels& channels, const Device& device, StageState& state);

  /// Posts the messages of an update that this replica has made. Needs: none is under way.
  void begin(int64_t step, wire::SampleRange update);
  bool under_way() const { return under_way_; }
  /// Whether all messages have moved.
  bool ready() const;
  /// The rank whose message it waits for, or -1.
  int32_t waits_for() const;
  /// The weights are whole. Needs: ready().
  void end();

 private:
  /// What another replica sends, where it is not received into the weight itself.
  struct Landing {
    size_t message = 0;
    int32_t from = 0;
    at::Tensor memory;
  };
  /// The elements of a parameter that a replica updates.
  ElementRange part_of(size_t parameter, int32_t replica) const;
  at::Tensor own_message(const SentTogether& parameters) const;
  void send(size_t message, int64_t step, wire::SampleRange update);
  void receive(size_t message, int32_t from, int64_t step, wire::SampleRange update);

  Channels& channels_;
  const Device& device_;
  StageState& state_;
  const int32_t replicas_;
  const std::vector<SentTogether> messages_;
  bool under_way_ = false;
  std::deque<PendingMessage> pending_;
  std::vector<Landing> landings_;
};

}  // namespace graphpipe::runtime
