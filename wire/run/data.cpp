#include "wire/run/data.h"

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

bool read_steps(const std::string& word, RunOptions& options) {
  int64_t steps = 0;
  if (!read_value(word, steps) || steps < 1 || steps > kMostSteps) return false;
  options.data.steps = steps;
  return true;
}

template <auto Member>
RunFlag data_flag(const char* name, const char* value_name, const char* help, bool is_path = false) {
  return value_flag<&RunOptions::data, Member>(name, value_name, help, FlagUser::kRunAndVerify, is_path);
}

}  // namespace

std::vector<RunFlag> data_flags() {
  return {
      data_flag<&DataOptions::folder>(
          "--data", "DIR", "folder with one NAME.npy per input and label; without it, seeded synthetic data", true),
      data_flag<&DataOptions::weights>("--weights", "FILE", "parameters to start from: a safetensors file of --save",
                                       true),
      {.name = "--steps",
       .value_name = "N",
       .help = "training steps, 1 or more",
       .user = FlagUser::kRunAndVerify,
       .read = read_steps,
       .write = [](const RunOptions& options) { return write_value(options.data.steps); }},
      data_flag<&DataOptions::seed>("--seed", "N", "seed of Dropout and of synthetic data, 0 to 2^64-1 (the plan's)"),
  };
}

}  // namespace graphpipe::wire
