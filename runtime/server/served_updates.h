#pragma once
// Replaces reductions and optimizer steps if a parameter server makes the updates: a rank's end of the messages with it
// (docs/schedules.md, section 3.1). A worker sends the gradients of each of its micro-batches and receives the server's
// weights before its next one; all receive them when the pipeline drains.

#include <deque>
#include <optional>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/stage_state.h"
#include "wire/result_lines.h"

namespace graphpipe::runtime {

class ServedUpdates {
 public:
  virtual ~ServedUpdates() = default;
  /// Begins the steps from `first_step` on, up to the next drain; the program's STEPs are their updates.
  virtual void begin(const ResolvedProgram& program, int64_t first_step) = 0;
  /// Returns once the state has the weights that its next forward reads.
  virtual void before_forward(StageState& state) = 0;
  /// Replaces the update that the action names.
  virtual void step(const ResolvedAction& action, StageState& state) = 0;
  /// Returns once the state has the weights of all updates since begin(), and no message is in flight.
  virtual void drain(StageState& state) = 0;
  /// Over all updates so far, on the server.
  virtual std::optional<wire::Staleness> staleness() const { return std::nullopt; }
};

/// The channel between the server and a worker, by the worker's replica number.
ChannelKey server_channel(int32_t replica, bool to_server);

/// One message for each trainable parameter of a stage, all in one direction at a time: gradients to the server, or
/// weights from it.
class ParameterMessages {
 public:
  /// Between the server and the worker with that replica number. All arguments must outlive it.
  ParameterMessages(Channels& channels, const Device& device, const StageState& state, int32_t replica);

  /// `tensors`: by parameter. They must not change until done(). `range`: the update's; empty for weights.
  void send(const std::vector<at::Tensor>& tensors, bool to_server, int64_t step, wire::SampleRange range);
  void receive(const std::vector<at::Tensor>& into, bool to_server, int64_t step, wire::SampleRange range);
  bool done() const;
  /// After a receive is done: copies what has arrived to its destination, if it is not there already.
  void take();

 private:
  Channels& channels_;
  const Device& device_;
  const StageState& state_;
  int32_t replica_;
  std::deque<PendingMessage> pending_;  // by trainable parameter
  std::vector<at::Tensor> into_;
};

}  // namespace graphpipe::runtime
