#pragma once
// A transport whose messages take as long as the plan's links would: the bytes pass through another transport at once,
// and count as arrived when the link would have delivered them. As in the simulator, a message starts when its link is
// free, occupies it for its bytes, and arrives a latency later; ranks that share a link take turns.

#include <memory>
#include <vector>

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// How long a channel's messages take; a channel without a link takes no time.
struct ChannelPace {
  int32_t link = -1;
  double latency = 0, byte = 0;  // seconds
  /// Per byte, after the arrival: the processing at the receiver.
  double work = 0;
};

/// When each link becomes free, in memory that all ranks of the host map. Times are those of the steady clock.
class LinkClock {
 public:
  /// Rank 0 creates it and the others open it via the store. Throws RunError (kEnvironment, kPeerFailed).
  LinkClock(Store* store, int32_t rank, int32_t ranks, int32_t links);
  ~LinkClock();
  LinkClock(const LinkClock&) = delete;
  LinkClock& operator=(const LinkClock&) = delete;

  /// Occupies the link for `length`, as soon as it is free; returns when that is over. Nanoseconds.
  int64_t occupy(int32_t link, int64_t now, int64_t length);

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

/// `paces` are by channel, as `inner` numbers them; `clock` must outlive the transport.
std::unique_ptr<Transport> pace_transport(std::unique_ptr<Transport> inner, std::vector<ChannelPace> paces,
                                          LinkClock& clock);

/// Nanoseconds of the steady clock.
int64_t pace_now();

}  // namespace graphpipe::runtime
