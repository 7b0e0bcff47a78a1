#include "wire/run/checkpoint.h"

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

template <auto Member>
RunFlag checkpoint_flag(const char* name, const char* value_name, const char* help, bool is_path = false) {
  return value_flag<&RunOptions::checkpoint, Member>(name, value_name, help, FlagUser::kRun, is_path);
}

// A whole number of 1 or more.
template <auto Member>
RunFlag count_flag(const char* name, const char* help) {
  RunFlag entry = checkpoint_flag<Member>(name, "N", help);
  entry.read = [](const std::string& word, RunOptions& options) {
    int64_t count = 0;
    if (!read_value(word, count) || count < 1 || count > kMaxSteps) return false;
    options.checkpoint.*Member = count;
    return true;
  };
  return entry;
}

bool read_minutes(const std::string& word, RunOptions& options) {
  double minutes = 0;
  if (!read_value(word, minutes) || minutes < 0.01 || minutes > 525600) return false;
  options.checkpoint.every_minutes = minutes;
  return true;
}

}  // namespace

std::vector<RunFlag> checkpoint_flags() {
  using O = CheckpointOptions;
  return {
      checkpoint_flag<&O::folder>(
          "--checkpoint", "DIR",
          "takes checkpoints: at the end, on SIGUSR1, and on SIGINT, SIGTERM or SIGHUP, which end the run", true),
      count_flag<&O::every_steps>("--checkpoint-every", "one every N steps too, 1 or more"),
      {.name = "--checkpoint-minutes",
       .value_name = "M",
       .help = "one every M minutes too, 0.01 or more",
       .user = FlagUser::kRun,
       .read = read_minutes,
       .write = [](const RunOptions& options) { return write_value(options.checkpoint.every_minutes); }},
      count_flag<&O::keep>("--keep", "how many checkpoints are kept, the last ones"),
      checkpoint_flag<&O::resume>(
          "--resume", "DIR", "goes on from the last whole checkpoint of such a folder, up to --steps in all", true),
      checkpoint_flag<&O::accept_changes>("--resume-changed", "",
                                          "goes on although the data, the seed or how they are read have changed"),
  };
}

}  // namespace graphpipe::wire
