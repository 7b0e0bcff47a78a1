#include "wire/run/output.h"

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

template <auto Member>
RunFlag file_flag(const char* name, const char* value_name, const char* help, FlagUser user) {
  return value_flag<&RunOptions::output, Member>(name, value_name, help, user, true);
}
template <auto Member>
RunFlag switch_flag(const char* name, const char* help) {
  return value_flag<&RunOptions::output, Member>(name, "", help, FlagUser::kProgram);
}

}  // namespace

std::vector<RunFlag> output_flags() {
  return {
      file_flag<&OutputOptions::save>("--save", "FILE", "writes the final parameters as safetensors", FlagUser::kRun),
      file_flag<&OutputOptions::save_average>("--save-ema", "FILE", "writes the parameters' moving average, of --ema",
                                              FlagUser::kRun),
      file_flag<&OutputOptions::save_gradients>("--save-gradients", "FILE",
                                                "writes the last step's gradients as safetensors", FlagUser::kRun),
      file_flag<&OutputOptions::save_outputs>(
          "--save-outputs", "FILE",
          "writes the model's outputs of all samples that the run takes as safetensors (--policy inference)",
          FlagUser::kRun),
      file_flag<&OutputOptions::save_eval_outputs>("--save-eval-outputs", "FILE",
                                                   "writes the model's outputs of --eval-data, of the last evaluation",
                                                   FlagUser::kRun),
      file_flag<&OutputOptions::trace>(
          "--trace", "FILE", "writes when every action ran, for Perfetto or chrome://tracing", FlagUser::kRun),
      file_flag<&OutputOptions::record_steps>(
          "--record-steps", "DIR", "with --serial: writes weights and gradients of every step", FlagUser::kProgram),
      file_flag<&OutputOptions::follow_steps>("--follow-steps", "DIR",
                                              "with --serial: begins every step with weights of such a folder",
                                              FlagUser::kProgram),
      switch_flag<&OutputOptions::json>("--json", "one JSON object on stdout"),
      switch_flag<&OutputOptions::progress>("--progress", "with --json: one line per step on stderr"),
  };
}

}  // namespace graphpipe::wire
