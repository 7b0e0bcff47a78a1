#include "wire/run/watch.h"

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

constexpr std::array<std::string_view, 2> kOnAnomaly = {"end", "skip"};

template <auto Member>
RunFlag table_flag(const char* name, const char* help) {
  RunFlag entry = value_flag<&RunOptions::watch, Member>(name, "FILE.jsonl|FILE.csv", help, FlagUser::kRun, true);
  entry.read = [](const std::string& word, RunOptions& options) {
    if (!word.ends_with(".jsonl") && !word.ends_with(".csv")) return false;
    options.watch.*Member = word;
    return true;
  };
  return entry;
}

bool read_factor(const std::string& word, RunOptions& options) {
  double factor = 0;
  if (!read_value(word, factor) || factor <= 1) return false;
  options.watch.max_loss_factor = factor;
  return true;
}

}  // namespace

std::vector<RunFlag> watch_flags() {
  using O = WatchOptions;
  return {
      table_flag<&O::log>("--log", "writes loss, time and gradient norm of every step as it happens"),
      table_flag<&O::metrics>("--metrics",
                              "writes what every stage computed, waited, sent and held in every step, as it happens"),
      value_flag<&RunOptions::watch, &O::tensorboard>("--tensorboard", "DIR", "adds an event file for TensorBoard",
                                                      FlagUser::kRun, true),
      choice_flag<&RunOptions::watch, &O::on_anomaly>(
          "--on-anomaly", "end|skip",
          "a loss or gradients that are not finite, or too large a loss: end the run or skip the step", FlagUser::kRun,
          kOnAnomaly),
      {.name = "--max-loss-factor",
       .value_name = "F",
       .help = "a loss of more than F times the median of the last 32 is too large; F above 1 (none is)",
       .user = FlagUser::kRun,
       .read = read_factor,
       .write = [](const RunOptions& options) { return write_value(options.watch.max_loss_factor); }},
  };
}

}  // namespace graphpipe::wire
