#include "wire/run_options.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "support/text.h"

namespace graphpipe::wire {
namespace {

const RunFlag* find_flag(const std::string& name) {
  for (const RunFlag& flag : run_flags())
    if (name == flag.name) return &flag;
  return nullptr;
}

}  // namespace

std::string RunFlag::default_word() const {
  return is_switch() || user == FlagUser::kProgram ? "" : write(RunOptions());
}

std::string RunFlag::value_words() const {
  const auto takes = [&](const char* word) {
    RunOptions options;
    return read(word, options);
  };
  if (is_switch() || takes("word") || !takes("1")) return value_name;
  return text(value_name, takes("0.5") ? ", a number, " : ", a whole number, ", takes("0") ? "0 or more" : "1 or more");
}

const std::vector<RunFlag>& run_flags() {
  static const std::vector<RunFlag> kFlags = [] {
    std::vector<RunFlag> all;
    for (const auto& of_group :
         {data_flags, optimizer_flags, checkpoint_flags, output_flags, watch_flags, launch_flags})
      for (RunFlag& flag : of_group()) all.push_back(std::move(flag));
    return all;
  }();
  return kFlags;
}

std::string step_file(const std::string& folder, int64_t step, const std::string& kind) {
  return folder + "/step" + std::to_string(step) + "." + kind + ".safetensors";
}

std::string parse_run_options(const std::vector<std::string>& arguments, RunOptions& options) {
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const RunFlag* flag = find_flag(name);
    if (flag == nullptr) return "unknown flag '" + name + "'; --help lists the flags";
    std::string value;
    if (equals != std::string::npos) {
      if (flag->is_switch()) return name + " takes no value";
      value = arguments[i].substr(equals + 1);
    } else if (!flag->is_switch()) {
      if (++i == arguments.size()) return name + " needs a value " + flag->value_name;
      value = arguments[i];
    }
    if (!flag->read(value, options)) return name + " does not take '" + value + "'; it takes " + flag->value_words();
    seen.insert(name);
  }
  if (seen.contains("--steps") && seen.contains("--epochs")) return "--steps and --epochs both say when to end";
  return flags_at_odds(options);
}

std::string flags_at_odds(const RunOptions& options) {
  if (!options.output.save_average.empty() && options.optimizer.average_decay == 0) return "--save-ema needs --ema";
  const bool keeps_average = !options.output.save_average.empty() || !options.checkpoint.folder.empty();
  if (options.optimizer.average_decay > 0 && !keeps_average)
    return "--ema makes an average that nothing keeps: add --save-ema or --checkpoint";
  if (options.optimizer.accumulate > 1 && options.watch.skips())
    return "--accumulate adds up whole steps, of which --on-anomaly skip would leave out some";
  const bool goes_on = !options.checkpoint.folder.empty() || !options.checkpoint.resume.empty();
  if (options.data.epochs == 0 && options.optimizer.accumulate > options.data.steps && !goes_on)
    return text("--accumulate makes an update of ", options.optimizer.accumulate, " steps, and the run ends after ",
                options.data.steps, " without one");
  if (options.optimizer.staleness && !options.data.feed.empty())
    return "--staleness starts a process that computes nothing, and --feed hands each process its samples";
  return optimizer_flags_at_odds(options.optimizer);
}

std::vector<std::string> to_arguments(const RunOptions& options) {
  const RunOptions defaults;
  std::vector<std::string> arguments;
  for (const RunFlag& flag : run_flags()) {
    const std::string value = flag.write(options);
    if (value == flag.write(defaults)) continue;
    if (flag.is_switch()) arguments.push_back(flag.name);
    std::istringstream lines(value);
    for (std::string line; !flag.is_switch() && std::getline(lines, line, flag.repeats ? '\n' : '\0');)
      arguments.insert(arguments.end(), {flag.name, line});
  }
  return arguments;
}

std::string run_options_help() {
  std::string out =
      "One device of a pipeline. All ranks together train, and rank 0 prints the losses; with --serial one "
      "process\ndoes what all of them do.\n\n";
  for (const RunFlag& flag : run_flags()) {
    std::string left = std::string("  ") + flag.name + (flag.is_switch() ? "" : " ") + flag.value_name;
    left.resize(std::max<size_t>(left.size() + 1, 28), ' ');
    const std::string absent = flag.default_word();
    out += left + flag.help + (absent.empty() ? "" : " (" + absent + ")") + "\n";
  }
  return out + "\nExample: torchrun --no-python --nproc-per-node 2 out/build/device --steps 5 --lr 0.1\n";
}

}  // namespace graphpipe::wire
