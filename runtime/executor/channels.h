#pragma once
// All channels of a rank, whatever carries them, and waits on them that always end: a dead peer, or one without
// progress for longer than the stall time-out (stall_watch.h), ends the run with an error that names its stage, action
// and micro-batch.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/executor/stall_watch.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// A posted message and the tensor that it moves. Must stay in place until it is done; if a failure unwinds the stack
/// first, its transport forgets it. Needs: the channels outlive it.
struct PendingMessage {
  PendingMessage() = default;
  PendingMessage(const PendingMessage&) = delete;
  PendingMessage& operator=(const PendingMessage&) = delete;
  ~PendingMessage() {
    if (!done()) transport->forget(message);
  }

  Message message;
  at::Tensor tensor;
  int32_t peer = -1;
  Transport* transport = nullptr;
  bool posted = false;
  bool done() const { return !posted || message.done; }
};

/// Stage and replica.
using StagePlace = std::pair<int32_t, int32_t>;

class Channels {
 public:
  /// `remote` may be null if no channel leaves this rank; its channels are the remote ones of `specs` in order.
  /// `device_copy`: of the device whose tensors pass (Device::copies()).
  Channels(const PlanTable& plan, int32_t rank, const std::vector<ChannelSpec>& specs,
           std::unique_ptr<Transport> remote, double stall_seconds, DeviceCopy device_copy = {});

  /// Posts a contiguous tensor in memory that the channel can send from. The pending message keeps it alive.
  void send(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step, wire::SampleRange range,
            int32_t part);
  /// Posts a receive into a contiguous tensor; the sender's must have the same shape.
  void receive(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step, wire::SampleRange range,
               int32_t part) {
    receive(pending, key, std::move(tensor), step, range, part, /*adds=*/false);
  }
  /// The same, but what arrives is added to the tensor. Needs: takes_sums() of it.
  void receive_sum(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step,
                   wire::SampleRange range, int32_t part) {
    receive(pending, key, std::move(tensor), step, range, part, /*adds=*/true);
  }
  /// Whether what arrives for the tensor can be added to it on arrival.
  bool takes_sums(const ChannelKey& key, const at::Tensor& tensor) const {
    return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && !takes_device_memory(key);
  }
  /// The same for any number of bytes.
  void send_bytes(PendingMessage& pending, const ChannelKey& key, std::vector<std::byte>& bytes);
  void receive_bytes(PendingMessage& pending, const ChannelKey& key, std::vector<std::byte>& sink);

  /// Whether the channel moves GPU tensors; otherwise they are staged through the CPU.
  bool takes_device_memory(const ChannelKey& key) const;
  /// Whether messages of the channel move while this rank computes (Transport::moves_alone).
  bool moves_alone(const ChannelKey& key) const;

  /// Tensor bytes that each stage's replica has sent to other ranks since the last call.
  std::map<StagePlace, int64_t> take_sent_bytes() { return std::exchange(sent_bytes_, {}); }

  /// Moves what can be moved; returns whether anything did.
  bool progress();
  /// Runs `after_progress` and progress until `ready`. `peer` tells which rank it waits for.
  void wait_until(const std::function<bool()>& ready, const std::function<int32_t()>& peer,
                  const std::function<void()>& after_progress = {});
  void wait_for(const PendingMessage& pending);
  /// Waits for work of this rank outside its actions, such as writing to disk, however long it takes.
  void wait_for_own_work(const std::function<bool()>& ready);
  /// Sleeps until `end`, while messages move.
  void pause_until(std::chrono::steady_clock::time_point end, const std::function<void()>& after_progress);
  /// From here on only a failing peer ends a wait: after the last step rank 0 writes files, however long that takes.
  void wait_without_limit() { stall_seconds_ = std::numeric_limits<double>::infinity(); }

  /// What the rank works on from now on, as shown to other ranks and in error messages.
  void publish(const wire::ActionRow& row, int64_t step);
  void leave(const std::string& problem);
  /// "at F of samples [0,4) ..., step 2": what the rank works on.
  std::string where() const { return activity_text(activity_); }
  const char* transport_name() const { return remote_ ? remote_->name() : "loopback"; }
  int32_t rank() const { return rank_; }

 private:
  struct End {
    bool local = false;
    size_t index = 0;  // within its transport
    int32_t peer = -1;
  };
  MessageHeader header(const ChannelKey& key, const at::Tensor& tensor, int64_t step, wire::SampleRange range,
                       int32_t part) const;
  void post(PendingMessage& pending, const ChannelKey& key, bool is_send);
  void receive(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step, wire::SampleRange range,
               int32_t part, bool adds);
  void count_sent(const ChannelKey& key, int64_t bytes);
  void check_failure();
  /// Publishes that this rank is still waiting, for `peer`.
  void beat(int32_t peer);
  std::optional<Activity> activity_of(int32_t rank) const;
  /// The root cause of the failure.
  Stall known_stall(const Stall& stall) const;
  [[noreturn]] void report_stall(const Stall& stall) const;
  std::string activity_text(const Activity& activity) const;
  std::string rank_text(int32_t rank) const;

  const PlanTable& plan_;
  int32_t rank_;
  uint64_t digest_;
  double stall_seconds_;
  std::unique_ptr<Transport> loopback_;
  std::unique_ptr<Transport> remote_;
  std::map<ChannelKey, End> ends_;
  Activity activity_;
  std::map<StagePlace, int64_t> sent_bytes_;
};

/// The channels of `specs` that leave the rank, in order: what the remote transport opens.
std::vector<ChannelSpec> remote_channels(const std::vector<ChannelSpec>& specs);

}  // namespace graphpipe::runtime
