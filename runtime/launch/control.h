#pragma once
// A rank's connection to rank 0: the rendezvous store, and status updates of the run. Rank 0 has one to itself.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/control_server.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

class ControlPlane : public Store {
 public:
  /// From here on this rank need not send beats: start-up is over. Until then a rank that is silent for longer than
  /// ControlTimes::silence ends the run.
  virtual void start_is_over() = 0;
  /// What this rank works on. From the first call on it is relayed to the others every ControlTimes::share.
  virtual void publish(const Activity& activity) = 0;
  virtual std::optional<Activity> activity_of(int32_t rank) const = 0;
  /// The first rank that failed, or ended without notice.
  virtual std::optional<PeerFailure> find_failure() const = 0;
  /// Whether rank 0 has failed, or its connection is over.
  virtual bool rank_zero_has_left() const = 0;
  /// On rank 0 what has been set for the key so far, also where the run has failed.
  virtual std::optional<std::string> find(const std::string& key) const = 0;
  /// Seconds since rank 0 was last heard from. It relays what the others do: while it is silent, nothing is known about
  /// them.
  virtual double silence_of_rank_zero() const = 0;
  /// Tells the others that this rank exits successfully, or with `problem`. Returns once rank 0 has told them, or is
  /// known to be unable to.
  virtual void leave(const std::string& problem) = 0;
  /// The key that authenticates the channels between ranks, and the run's id.
  virtual const Key& channel_key() const = 0;
  virtual const RunId& run() const = 0;
  /// The numeric address of this end of the connection and of rank 0's; loopback if they share a host.
  virtual std::string own_address() const = 0;
  virtual std::string address_of_rank_zero() const = 0;
};

/// Ends this rank because another one has failed. Throws RunError, a note if another rank reports the cause.
[[noreturn]] void end_with_peer(const PeerFailure& failure, int32_t own_rank);

/// The control plane of a rank over an authenticated connection to rank 0; rank 0 passes the server too. `get_seconds`:
/// how long a rank waits for a key while all ranks are alive. Throws RunError (kPeerFailed) if rank 0 is lost
/// meanwhile.
std::unique_ptr<ControlPlane> open_control(int32_t rank, Introduced introduced, std::unique_ptr<ControlServer> server,
                                           const Key& key, ControlTimes times, double get_seconds);

}  // namespace graphpipe::runtime
