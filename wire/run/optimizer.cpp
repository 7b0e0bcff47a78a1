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
  options.optimizer.beta1 = beta1;
  options.optimizer.beta2 = beta2;
  return true;
}

template <auto Member>
RunFlag update_flag(const char* name, const char* help) {
  return value_flag<&RunOptions::optimizer, Member>(name, "X", help, FlagUser::kRunAndVerify);
}

}  // namespace

std::vector<RunFlag> optimizer_flags() {
  return {
      update_flag<&OptimizerOptions::learning_rate>("--lr", "learning rate (SGD 0.01, AdamW 0.001)"),
      update_flag<&OptimizerOptions::momentum>("--momentum", "SGD momentum"),
      update_flag<&OptimizerOptions::weight_decay>("--weight-decay", "weight decay (SGD 0, AdamW 0.01)"),
      {.name = "--betas",
       .value_name = "X,Y",
       .help = "AdamW moment decays, two numbers in [0, 1)",
       .user = FlagUser::kRunAndVerify,
       .read = read_betas,
       .write =
           [](const RunOptions& options) {
             return write_value(options.optimizer.beta1) + "," + write_value(options.optimizer.beta2);
           }},
      update_flag<&OptimizerOptions::epsilon>("--eps", "AdamW epsilon"),
      update_flag<&OptimizerOptions::clip_norm>("--clip-norm", "largest global gradient norm; 0 clips nothing"),
  };
}

}  // namespace graphpipe::wire
