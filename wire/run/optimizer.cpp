#include "wire/run/optimizer.h"

#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

bool read_betas(const std::string& word, RunOptions& options) {
  const size_t comma = word.find(',');
  double beta1 = 0, beta2 = 0;
  if (comma == std::string::npos || !read_value(word.substr(0, comma), beta1) ||
      !read_value(word.substr(comma + 1), beta2) || beta1 >= 1 || beta2 >= 1)
    return false;
  options.optimizer.betas = {beta1, beta2};
  return true;
}

template <auto Member>
RunFlag update_flag(const char* name, const char* help) {
  return value_flag<&RunOptions::optimizer, Member>(name, "X", help, FlagUser::kRunAndVerify);
}

}  // namespace

std::vector<RunFlag> optimizer_flags() {
  return {
      update_flag<&OptimizerOptions::learning_rate>("--lr", "learning rate (SGD 0.01, others 0.001)"),
      update_flag<&OptimizerOptions::momentum>("--momentum", "part of the last change that a change begins with (0)"),
      {.name = "--nesterov",
       .value_name = "",
       .help = "Nesterov's momentum",
       .user = FlagUser::kRunAndVerify,
       .read = [](const std::string&, RunOptions& options) { return options.optimizer.nesterov = true; },
       .write = [](const RunOptions& options) { return write_value(options.optimizer.nesterov); }},
      update_flag<&OptimizerOptions::weight_decay>("--weight-decay", "weight decay (AdamW 0.01, others 0)"),
      {.name = "--betas",
       .value_name = "X,Y",
       .help = "decays of the two moments, numbers in [0, 1) (0.9,0.999)",
       .user = FlagUser::kRunAndVerify,
       .read = read_betas,
       .write =
           [](const RunOptions& options) {
             const std::optional<Betas>& betas = options.optimizer.betas;
             return betas ? write_value(betas->first) + "," + write_value(betas->second) : std::string();
           }},
      update_flag<&OptimizerOptions::epsilon>("--eps", "what is added to the divisor of an update (1e-8)"),
      update_flag<&OptimizerOptions::clip_norm>("--clip-norm", "largest global gradient norm; 0 clips nothing"),
  };
}

}  // namespace graphpipe::wire
