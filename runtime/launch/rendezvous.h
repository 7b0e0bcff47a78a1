#pragma once
// Where ranks meet: a c10d TCPStore that rank 0 serves, on loopback unless the run spans hosts.

#include <memory>
#include <optional>
#include <string>

#include "runtime/transport/channel.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

struct Rendezvous {
  int32_t rank = 0;
  int32_t world_size = 1;
  /// Rank within this host: which of its GPUs to take.
  int32_t local_rank = 0;
  /// Whether this rank checks the files of its host for all ranks there. More than one may where a launcher does not
  /// say who shares a host.
  bool first_on_host = true;
  std::string address = "127.0.0.1";
  int32_t port = 0;
  /// Rank 0: an inherited listening socket, or -1.
  int32_t listen_fd = -1;
  /// The launcher's agent serves the store, so that rank 0 too is a client.
  bool agent_store = false;
};

/// The rank that --rank or the environment of torchrun, mpirun or srun names. Throws RunError (kUsage) where a variable
/// of theirs is not a number.
std::optional<int32_t> find_rank(const wire::RunOptions& options);

/// Fills rank, world and address from the flags, else from the environment of torchrun, srun or mpirun, else from the
/// program's own device. Throws RunError (kUsage) where they contradict the plan.
Rendezvous find_rendezvous(const wire::RunOptions& options, int32_t device, int32_t device_count);

/// The store of c10d itself, for transports that are c10d's: a c10::intrusive_ptr<c10d::Store>*.
class C10dStore : public Store {
 public:
  virtual void* c10d_store() = 0;
};

/// Serves (rank 0) and joins the store; waits at most `seconds` for the others.
std::unique_ptr<C10dStore> join_store(const Rendezvous& rendezvous, double seconds);

/// The numeric address that this host reaches rank 0's from: what other hosts can reach it by.
std::string local_address_towards(const Rendezvous& rendezvous);

/// Opens a listening socket on 127.0.0.1 with a port of the system's choice. Returns the descriptor; sets `port`.
int listen_on_loopback(int32_t& port);

}  // namespace graphpipe::runtime
