#pragma once
// Where a run computes, and how its ranks meet.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

inline constexpr int kLargestPort = 65535;
inline constexpr double kStallTimeout = 10;

/// Whether replicas sum gradients while the last backward of their stage still runs.
enum class Overlap : uint8_t { kAuto, kAlways, kNever };
/// The word of --overlap-all-reduce. Needs: one of its words.
Overlap overlap_named(std::string_view word);

struct LaunchOptions {
  /// "cpu", or "cuda" for the GPU of this rank on its host.
  std::string device = "cpu";
  /// CPU threads of this program; 0 takes the plan's.
  int threads = 0;
  /// Rank r of a host computes on its r-th `threads` cores, and nowhere else.
  bool pin = false;
  /// Seconds without progress after which a peer counts as stalled. Absent: kStallTimeout, or more where the plan's
  /// longest action needs more.
  std::optional<double> stall_timeout;
  /// "auto": shared memory between ranks on one host, TCP between hosts.
  std::string transport = "auto";
  /// "auto", "always" or "never".
  std::string overlap = "auto";
  /// The generated folder (manifest, weights). Empty: looked for from the program's own folder upwards.
  std::string folder;
  /// -1 and empty: taken from the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SLURM_*, OMPI_*), else from
  /// the program's own device.
  int rank = -1;
  int world_size = -1;
  std::string master_address;
  /// 1 to kLargestPort.
  int master_port = -1;
  /// Rank 0 only: a listening socket that it inherits and serves the rendezvous on; -1: it opens one.
  int listen_fd = -1;
  /// Connections between rank 0 and the others, made before they started: descriptors that rank 0 inherits, one per
  /// other rank, and that each of these inherits, one. Empty: they meet at the address and port.
  std::vector<int> rendezvous_fds;
  /// Process id of the launcher, which has looked at the data: the program dies with it, and leaves what another rank
  /// reports itself to that one. 0: it does not watch.
  int64_t parent = 0;
  /// Of a run that may start again: where rank 0 keeps what its result tells of each step, and finds it after that.
  std::string kept_steps;
  /// CPU: what a step allocates lies where the allocator puts it.
  bool no_arena = false;
  /// GPU: every step launches its kernels one by one.
  bool no_graphs = false;
  /// The serial interpreter runs the programs of all ranks; nothing that is of one rank counts.
  bool serial = false;
  /// Of a profiling program: the second process does not run the model beside the first.
  bool alone = false;
  bool help = false;

  bool operator==(const LaunchOptions&) const = default;
};

std::vector<RunFlag> launch_flags();

}  // namespace graphpipe::wire
