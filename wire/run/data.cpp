#include "wire/run/data.h"

#include <array>
#include <string_view>

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

// By LastBatch.
constexpr std::array<std::string_view, 4> kLastBatches = {"wrap", "drop", "pad", "train"};

bool read_steps(const std::string& word, RunOptions& options) {
  int64_t steps = 0;
  if (!read_value(word, steps) || steps < 1 || steps > kMaxSteps) return false;
  options.data.steps = steps;
  return true;
}

bool read_epochs(const std::string& word, RunOptions& options) {
  int64_t epochs = 0;
  if (!read_value(word, epochs) || epochs < 1 || epochs > kMaxSteps) return false;
  options.data.epochs = epochs;
  return true;
}

bool read_eval_every(const std::string& word, RunOptions& options) {
  int64_t steps = 0;
  if (!read_value(word, steps) || steps < 1 || steps > kMaxSteps) return false;
  options.data.eval_every = steps;
  return true;
}

bool read_last_batch(const std::string& word, RunOptions& options) {
  for (size_t i = 0; i < kLastBatches.size(); ++i) {
    if (word != kLastBatches[i]) continue;
    options.data.last_batch = static_cast<LastBatch>(i);
    return true;
  }
  return false;
}

std::string write_last_batch(const RunOptions& options) {
  return std::string(kLastBatches[static_cast<size_t>(options.data.last_batch)]);
}

template <auto Member>
RunFlag data_flag(const char* name, const char* value_name, const char* help, bool is_path = false) {
  return value_flag<&RunOptions::data, Member>(name, value_name, help, FlagUser::kRunAndVerify, is_path);
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<RunFlag> data_flags() {
  return {
      data_flag<&DataOptions::folder>(
          "--data", "DIR",
          "folder with NAME.npy, or parts NAME.0.npy and so on, per input and label; or Parquet, Arrow or WebDataset "
          "files; else synthetic data",
          true),
      {.name = "--pad",
       .value_name = "NAME=NUMBER",
       .help = "fills up samples of this input that are smaller than the plan's, at the end of each axis; repeatable",
       .user = FlagUser::kRunAndVerify,
       .kept_on_resume = true,
       .repeats = true,
       .read = [](const std::string& word, RunOptions& o) { return read_padding(word, o.data.paddings); },
       .write = [](const RunOptions& o) { return write_paddings(o.data.paddings); }},
      value_flag<&RunOptions::data, &DataOptions::feed>(
          "--feed", "SOCKET", "takes the batches from a program that waits at this Unix socket, instead of --data",
          FlagUser::kRun, true),
      data_flag<&DataOptions::weights>("--weights", "FILE", "parameters to start from: a safetensors file of --save",
                                       true),
      {.name = "--steps",
       .value_name = "N",
       .help = "steps, 1 or more; without it a run of --policy inference takes every sample once",
       .user = FlagUser::kRunAndVerify,
       .read = read_steps,
       .write = [](const RunOptions& options) { return write_value(options.data.steps); }},
      {.name = "--epochs",
       .value_name = "N",
       .help = "how often the data are read, 1 or more, instead of --steps",
       .user = FlagUser::kRunAndVerify,
       .read = read_epochs,
       .write = [](const RunOptions& o) { return o.data.epochs > 0 ? write_value(o.data.epochs) : ""; }},
      kept(
          data_flag<&DataOptions::shuffle>("--shuffle", "", "reads the samples of every epoch in an order of its own")),
      {.name = "--last-batch",
       .value_name = "RULE",
       .help = "samples at an epoch's end that fill no batch: wrap (the next epoch follows), drop, pad, train, usual "
               "without training",
       .user = FlagUser::kRunAndVerify,
       .kept_on_resume = true,
       .read = read_last_batch,
       .write = write_last_batch},
      value_flag<&RunOptions::data, &DataOptions::eval_folder>(
          "--eval-data", "DIR", "folder as of --data: its loss is computed, forwards only, and printed", FlagUser::kRun,
          true),
      {.name = "--eval-every",
       .value_name = "N",
       .help = "steps from one evaluation to the next; without it, after the last step",
       .user = FlagUser::kRun,
       .read = read_eval_every,
       .write = [](const RunOptions& o) { return o.data.eval_every > 0 ? write_value(o.data.eval_every) : ""; }},
      data_flag<&DataOptions::seed>("--seed", "N",
                                    "seed of Dropout, of --shuffle and of synthetic data, 0 to 2^64-1 (the plan's)"),
  };
}

}  // namespace graphpipe::wire
