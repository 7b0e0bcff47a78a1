#pragma once
// Where ranks meet: at rank 0, by connections that the launcher made before it started them, or else by TCP, on
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
  /// Rank within this host: which of its GPUs to take.
  int32_t local_rank = 0;
  /// Whether this rank checks the files of its host for all ranks there. More than one may where a launcher does not
  /// say who shares a host.
  bool first_on_host = true;
  std::string address = "127.0.0.1";
  int32_t port = 0;
  /// Rank 0: an inherited listening socket, or -1.
  int32_t listen_fd = -1;
  /// Inherited connections between rank 0 and the others: of rank 0 one per other rank, of these one. Else empty.
  /// join_run() owns and closes them, as it does listen_fd.
  std::vector<int> inherited;
  /// torchrun's agent has its own store at the address and port: rank 0 listens elsewhere and says where in that store.
  bool agent_store = false;
  /// Seconds to wait for what another rank does before it is ready (it may read large weights), while it is alive.
  double get_seconds = 3600;
  ControlTimes times;
};

/// The rank that --rank or the environment of torchrun, mpirun or srun names. Throws RunError (kUsage) where a variable
/// of theirs is not a number.
std::optional<int32_t> find_rank(const wire::RunOptions& options);

/// Fills rank, world and address from the flags, else from the environment of torchrun, srun or mpirun, else from the
/// program's own device. Throws RunError (kUsage) where they contradict the plan.
Rendezvous find_rendezvous(const wire::RunOptions& options, int32_t device, int32_t device_count);

/// Joins the ranks of the run; rank 0 serves their control connections. Strangers are kept out by the run's secret
/// (wire/secret.h), whatever they send. A rank that cannot be reached, ends or stops before the start is over ends the
/// run: RunError (kPeerFailed; kUsage without a secret; kEnvironment where no port can be had, or where what listens at
/// rank 0's does not know the secret).
std::unique_ptr<ControlPlane> join_run(const Rendezvous& rendezvous);

}  // namespace graphpipe::runtime
