#include "wire/run/launch.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "support/check.h"
#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

template <auto Member>
RunFlag launch_flag(const char* name, const char* value_name, const char* help, FlagUser user = FlagUser::kProgram) {
  return value_flag<&RunOptions::launch, Member>(name, value_name, help, user);
}

template <auto Member, size_t N>
RunFlag name_flag(const char* name, const char* help, const std::array<std::string_view, N>& words) {
  return choice_flag<&RunOptions::launch, Member>(name, "NAME", help, FlagUser::kRunAndVerify, words);
}

bool read_stall_timeout(const std::string& word, RunOptions& options) {
  double seconds = 0;
  if (!read_value(word, seconds) || seconds < 0.1 || seconds > 86400) return false;
  options.launch.stall_timeout = seconds;
  return true;
}

bool read_port(const std::string& word, RunOptions& options) {
  int port = 0;
  if (!read_value(word, port) || port < 1 || port > kLargestPort) return false;
  options.launch.master_port = port;
  return true;
}

// "gloo" is what the TCP transport was called.
constexpr std::array<std::string_view, 5> kTransports = {"auto", "shm", "tcp", "nccl", "gloo"};
constexpr std::array<std::string_view, 2> kDevices = {"cpu", "cuda"};
constexpr std::array<std::string_view, 3> kOverlaps = {"auto", "always", "never"};

}  // namespace

Overlap overlap_named(std::string_view word) {
  const auto found = std::ranges::find(kOverlaps, word);
  GP_CHECK(found != kOverlaps.end());
  return static_cast<Overlap>(found - kOverlaps.begin());
}

std::vector<RunFlag> launch_flags() {
  using O = LaunchOptions;
  return {
      name_flag<&O::device>("--device", "where stages compute: cpu, or cuda in programs built with CUDA", kDevices),
      name_flag<&O::transport>("--transport", "how stages talk: auto, shm, tcp or nccl", kTransports),
      name_flag<&O::overlap>(
          "--overlap-all-reduce",
          "whether replicas sum gradients before a backward ends: auto (networks, NCCL), always, never", kOverlaps),
      {.name = "--stall-timeout",
       .value_name = "SECONDS",
       .help = "a peer without progress for longer ends the run, 0.1 to 86400 (10, or what long actions need)",
       .user = FlagUser::kRunAndVerify,
       .read = read_stall_timeout,
       .write = [](const RunOptions& options) { return write_value(options.launch.stall_timeout); }},
      launch_flag<&O::threads>("--threads", "N", "CPU threads of this program (the plan's)"),
      launch_flag<&O::pin>("--pin", "", "gives each rank cores of its own, as many as it has threads",
                           FlagUser::kRunAndVerify),
      launch_flag<&O::no_arena>("--no-arena", "", "takes memory as a step asks for it, without fixed places on CPUs",
                                FlagUser::kRunAndVerify),
      launch_flag<&O::no_graphs>("--no-cuda-graphs", "", "launches a GPU's kernels one by one, without CUDA graphs",
                                 FlagUser::kRunAndVerify),
      launch_flag<&O::serial>("--serial", "", "computes what all ranks do in one process, one action after the other"),
      launch_flag<&O::alone>("--alone", "", "measures the model in one process, for want of memory for two"),
      launch_flag<&O::folder>("--folder", "DIR", "the generated folder (found from the program's place)"),
      launch_flag<&O::rank>("--rank", "N", "this program's rank (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID)"),
      launch_flag<&O::world_size>("--world-size", "N", "number of ranks (WORLD_SIZE, OMPI_COMM_WORLD_SIZE, ...)"),
      launch_flag<&O::master_address>("--master-address", "HOST", "where rank 0 serves the rendezvous (MASTER_ADDR)"),
      {.name = "--master-port",
       .value_name = "PORT",
       .help = "its port, 1 to 65535 (MASTER_PORT)",
       .read = read_port,
       .write = [](const RunOptions& options) { return write_value(options.launch.master_port); }},
      launch_flag<&O::listen_fd>("--listen-fd", "FD", "rank 0: inherited listening socket of the rendezvous"),
      launch_flag<&O::rendezvous_fds>("--rendezvous-fds", "FD,...",
                                      "inherited connections between rank 0 and the others"),
      launch_flag<&O::parent>("--parent", "PID", "dies with this process"),
      launch_flag<&O::kept_steps>("--kept-steps", "FILE", "rank 0: where the result's steps outlast it (.csv)"),
      launch_flag<&O::help>("--help", "", "prints this text"),
  };
}

}  // namespace graphpipe::wire
