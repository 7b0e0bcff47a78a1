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
/// What absent numbers of an optimizer mean.
inline constexpr double kSgdLearningRate = 0.01, kAdamWLearningRate = 1e-3, kAdamWWeightDecay = 0.01;

struct RunOptions {
  /// Folder with one NAME.npy per input and label; empty: synthetic data.
  std::string data;
  int64_t steps = 1;
  /// Absent: as above.
  std::optional<double> learning_rate;
  double momentum = 0;
  std::optional<double> weight_decay;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Largest global gradient norm; 0 clips nothing.
  double clip_norm = 0;
  /// Of dropout and of synthetic data. Absent: the plan's.
  std::optional<uint64_t> seed;
  /// CPU threads of this program; 0 takes the plan's.
  int threads = 0;
  std::string save;
  std::string save_gradients;
  /// Of the serial interpreter, for `verify`: a folder that takes what every step begins and ends with (step_file), and
  /// such a folder of another run, whose weights every step begins with.
  std::string record_steps, follow_steps;
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
  /// With json: writes one line per step to stderr (rank 0).
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
  /// Process id of the launcher, which has looked at the data: the program dies with it, and leaves what another rank
  /// reports itself to that one. 0: it does not watch.
  int64_t parent = 0;
  bool help = false;

  bool operator==(const RunOptions&) const = default;
};

/// The file of a recorded step: "FOLDER/step3.gradients.safetensors". Steps count from 1; the weights of step 0 are
/// those that the first one began with. Kinds: weights (after the step), gradients, and second_moments of AdamW,
/// corrected for their start.
std::string step_file(const std::string& folder, int64_t step, const std::string& kind);

/// Reads the arguments after the program's name. Returns an empty text, or what is wrong with them.
std::string parse_run_options(const std::vector<std::string>& arguments, RunOptions& options);

/// The arguments that parse back into `options`; defaults are left out.
std::vector<std::string> to_arguments(const RunOptions& options);

/// The text of --help.
std::string run_options_help();

}  // namespace graphpipe::wire
