#pragma once
// A rank's connection to rank 0: the store that ranks meet at, and the news of the run. Rank 0 has one to itself.

#include <memory>
#include <string>
#include <vector>

#include "runtime/launch/control_server.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

class ControlPlane : public Store {
 public:
  /// From here on the other ranks need not hear of this one: the start is over. Until then a rank that is silent for
  /// longer than ControlTimes::silence ends the run.
  virtual void start_is_over() = 0;
  /// What this rank works on. From the first call on the others are told, every ControlTimes::share.
  virtual void publish(const Activity& activity) = 0;
  virtual std::optional<Activity> activity_of(int32_t rank) const = 0;
  /// The first rank that failed, or ended without a word.
  virtual std::optional<PeerFailure> find_failure() const = 0;
  /// Seconds since rank 0 was last heard of. It tells on what the others do: while it is silent nothing is known of
  /// them.
  virtual double silence_of_rank_zero() const = 0;
  /// Tells the others that this rank ends well, or with `problem`. Returns once rank 0 has told them, or cannot.
  virtual void leave(const std::string& problem) = 0;
  /// What the channels between ranks are authenticated with, and the run's own number.
  virtual const Key& channel_key() const = 0;
  virtual const RunId& run() const = 0;
  /// The address of this end of the connection and of rank 0's, as numbers; loopback where they share a host.
  virtual std::string own_address() const = 0;
  virtual std::string address_of_rank_zero() const = 0;
};

/// Ends what this rank does because another one has failed. Throws RunError, a note where somebody else says why.
[[noreturn]] void end_with_peer(const PeerFailure& failure, int32_t own_rank);

/// The control plane of a rank by a connection to rank 0 that has been introduced; rank 0 has the server too.
/// `get_seconds`: how long a rank waits for a key while all ranks are alive. Throws RunError (kPeerFailed) where rank 0
/// is lost meanwhile.
std::unique_ptr<ControlPlane> open_control(int32_t rank, Introduced introduced, std::unique_ptr<ControlServer> server,
                                           const Key& key, ControlTimes times, double get_seconds);

}  // namespace graphpipe::runtime
