#pragma once
// The arguments of a device program: what `graphpipe run` passes to the programs that it starts, and what a user may
// type under torchrun, srun or mpirun. Flags take their value as `--flag value` or `--flag=value`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace graphpipe::wire {

inline constexpr int kLargestPort = 65535;
inline constexpr double kStallTimeout = 10;

struct RunOptions {
  /// Folder with one NAME.npy per input and label; empty: synthetic data.
  std::string data;
  int64_t steps = 1;
  /// Absent numbers take the optimizer's defaults: SGD lr 0.01; AdamW lr 1e-3, weight decay 0.01.
  std::optional<double> learning_rate;
  double momentum = 0;
  std::optional<double> weight_decay;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Largest global gradient norm; 0 clips nothing.
  double clip_norm = 0;
  uint64_t seed = 0;
  /// CPU threads of this program; 0 takes the plan's.
  int threads = 0;
  std::string save;
  std::string save_gradients;
  /// The model's outputs of all samples, where programs only run forwards.
  std::string save_outputs;
  /// What an earlier run has saved, to start from; empty: the generated folder's weights.
  std::string weights;
  /// Chrome trace of what every rank did when; empty: none.
  std::string trace;
  /// "cpu", or "cuda" for the GPU of this rank on its host.
  std::string device = "cpu";
  /// Seconds without progress after which a peer counts as stalled. Absent: kStallTimeout, or more where the plan's
  /// longest action needs more.
  std::optional<double> stall_timeout;
  bool json = false;
  /// Writes one line per step to stderr (rank 0).
  bool progress = false;
  /// "auto": shared memory where all ranks run on one host, else TCP.
  std::string transport = "auto";
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
  /// Process id of the launcher: the program dies with it. 0: it does not watch.
  int64_t parent = 0;
  bool help = false;

  bool operator==(const RunOptions&) const = default;
};

/// Reads the arguments after the program's name. Returns an empty text, or what is wrong with them.
std::string parse_run_options(const std::vector<std::string>& arguments, RunOptions& options);

/// The arguments that parse back into `options`; defaults are left out.
std::vector<std::string> to_arguments(const RunOptions& options);

/// The text of --help.
std::string run_options_help();

}  // namespace graphpipe::wire
