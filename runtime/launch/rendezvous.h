#pragma once
// Where ranks meet: at rank 0, over connections that the launcher made before it started them, or else over TCP, on
// loopback unless the run spans hosts.

#include <memory>
#include <optional>
#include <string>

#include "runtime/launch/control.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

struct Rendezvous {
  int32_t rank = 0;
  int32_t world_size = 1;
  /// Rank within this host: determines which of its GPUs to use.
  int32_t local_rank = 0;
  /// Whether this rank checks the files of its host on behalf of all ranks there. More than one rank may, if a launcher
  /// does not tell which ranks share a host.
  bool first_on_host = true;
  std::string address = "127.0.0.1";
  int32_t port = 0;
  /// Rank 0: an inherited listening socket, or -1.
  int32_t listen_fd = -1;
  /// Inherited connections between rank 0 and the others: on rank 0 one per other rank, on the others one. Otherwise
  /// empty. join_run() owns and closes them, as well as listen_fd.
  std::vector<int> inherited;
  /// torchrun's agent has its own store at the address and port: rank 0 listens elsewhere and publishes its address
  /// there.
  bool agent_store = false;
  /// Seconds to wait for another rank to get ready (it may be reading large weights), while it is alive.
  double get_seconds = 3600;
  ControlTimes times;
};

/// The rank given by --rank or the environment of torchrun, mpirun or srun. Throws RunError (kUsage) if one of their
/// variables is not a number.
std::optional<int32_t> find_rank(const wire::RunOptions& options);

/// Takes rank, world and address from the flags, else from the environment of torchrun, srun or mpirun, else from the
/// program's own device. Throws RunError (kUsage) if they contradict the plan.
Rendezvous find_rendezvous(const wire::RunOptions& options, int32_t device, int32_t device_count);

/// Joins the ranks of the run; rank 0 serves their control connections. Unauthenticated peers are kept out by the run's
/// secret (wire/secret.h), whatever they send. A rank that cannot be reached, ends or stops during start-up ends the
/// run: RunError (kPeerFailed; kUsage without a secret; kEnvironment if no port is available, or if the process that
/// listens at rank 0's address does not know the secret).
std::unique_ptr<ControlPlane> join_run(const Rendezvous& rendezvous);

}  // namespace graphpipe::runtime
