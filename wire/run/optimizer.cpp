#include "wire/run/optimizer.h"

#include <cmath>

#include "wire/learning_rate.h"
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

std::string write_betas(const RunOptions& options) {
  const std::optional<Betas>& betas = options.optimizer.betas;
  return betas ? write_value(betas->first) + "," + write_value(betas->second) : std::string();
}

bool read_group(const std::string& word, RunOptions& options) {
  std::optional<ParameterGroup> group = parse_parameter_group(word);
  if (group) options.optimizer.groups.push_back(*std::move(group));
  return group.has_value();
}

// One line each.
std::string write_groups(const RunOptions& options) {
  std::string lines;
  for (const ParameterGroup& group : options.optimizer.groups)
    lines += (lines.empty() ? "" : "\n") + parameter_group_text(group);
  return lines;
}

constexpr const char* kNormsAndBiases = "norms-and-biases";

bool read_no_decay(const std::string& word, RunOptions& options) {
  if (word != kNormsAndBiases) return false;
  return options.optimizer.spares_norms_and_biases = true;
}

bool read_schedule(const std::string& word, RunOptions& options) {
  if (!LearningRate::parse(word)) return false;
  options.optimizer.schedule = word;
  return true;
}

bool read_warmup(const std::string& word, RunOptions& options) {
  int64_t steps = 0;
  if (!read_value(word, steps) || steps > kMaxSteps) return false;
  options.optimizer.warmup = steps;
  return true;
}

bool read_accumulate(const std::string& word, RunOptions& options) {
  int64_t steps = 0;
  if (!read_value(word, steps) || steps < 1 || steps > kMaxSteps) return false;
  options.optimizer.accumulate = steps;
  return true;
}

bool read_loss_scale(const std::string& word, RunOptions& options) {
  double scale = 0;
  int exponent = 0;
  if (!read_value(word, scale) || (scale != 0 && std::frexp(scale, &exponent) != 0.5)) return false;
  options.optimizer.loss_scale = scale;
  return true;
}

bool read_loss_scale_growth(const std::string& word, RunOptions& options) {
  int64_t updates = 0;
  if (!read_value(word, updates) || updates < 1 || updates > kMaxSteps) return false;
  options.optimizer.loss_scale_growth = updates;
  return true;
}

bool read_decay(const std::string& word, RunOptions& options) {
  double decay = 0;
  if (!read_value(word, decay) || decay <= 0 || decay >= 1) return false;
  options.optimizer.average_decay = decay;
  return true;
}

template <auto Member>
std::string write_member(const RunOptions& options) {
  return write_value(options.optimizer.*Member);
}

template <auto Member>
RunFlag number_flag(const char* name, const char* help) {
  return value_flag<&RunOptions::optimizer, Member>(name, "X", help, FlagUser::kRunAndVerify);
}

RunFlag read_flag(const char* name, const char* value_name, const char* help,
                  bool (*read)(const std::string&, RunOptions&), std::string (*write)(const RunOptions&)) {
  return {.name = name,
          .value_name = value_name,
          .help = help,
          .user = FlagUser::kRunAndVerify,
          .read = read,
          .write = write};
}

RunFlag scaling_by_replicas() {
  return read_flag(
      "--lr-by-replicas", "", "multiplies a stage's learning rate with its replicas over those of the first stage",
      [](const std::string&, RunOptions& options) { return options.optimizer.scales_by_replicas = true; },
      write_member<&OptimizerOptions::scales_by_replicas>);
}

RunFlag staleness_flag() {
  RunFlag flag = read_flag(
      "--staleness", "N",
      "a parameter server of its own applies gradients as they come, at weights at most N updates old",
      [](const std::string& word, RunOptions& options) { return read_value(word, options.optimizer.staleness); },
      write_member<&OptimizerOptions::staleness>);
  flag.user = FlagUser::kRun;
  return flag;
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<RunFlag> optimizer_flags() {
  using O = OptimizerOptions;
  RunFlag group = read_flag("--group", "PATTERN:lr=X,weight-decay=Y",
                            "numbers of the parameters that a pattern names (* and ?); the last group counts",
                            read_group, write_groups);
  group.repeats = true;
  RunFlag average = read_flag("--ema", "DECAY", "keeps a moving average of the weights, decay in (0, 1)", read_decay,
                              [](const RunOptions& options) {
                                const double decay = options.optimizer.average_decay;
                                return decay > 0 ? write_value(decay) : std::string();
                              });
  average.user = FlagUser::kRun;
  return {
      number_flag<&O::learning_rate>("--lr", "learning rate (SGD and Adagrad 0.01, others 0.001)"),
      number_flag<&O::momentum>("--momentum", "part of the last change that a change begins with (SGD 0, Muon 0.95)"),
      read_flag(
          "--nesterov", "", "Nesterov's momentum",
          [](const std::string&, RunOptions& options) { return options.optimizer.nesterov = true; },
          write_member<&O::nesterov>),
      number_flag<&O::weight_decay>("--weight-decay", "weight decay (AdamW 0.01, Muon 0.1, others 0)"),
      read_flag("--betas", "X,Y", "decays of the two moments, numbers in [0, 1) (0.9,0.999; Muon 0.9,0.95)", read_betas,
                write_betas),
      number_flag<&O::epsilon>("--eps", "what is added to the divisor of an update (the optimizer's own)"),
      std::move(group),
      read_flag("--no-decay", kNormsAndBiases,
                "no weight decay of parameters with fewer than two dimensions, unless a --group gives them one",
                read_no_decay,
                [](const RunOptions& options) {
                  return std::string(options.optimizer.spares_norms_and_biases ? kNormsAndBiases : "");
                }),
      read_flag("--lr-schedule", "SHAPE", "constant, linear:N[,END], cosine:N[,END] or step:N,FACTOR", read_schedule,
                write_member<&O::schedule>),
      read_flag("--warmup", "N", "steps in which the learning rate grows to its value", read_warmup,
                write_member<&O::warmup>),
      value_flag<&RunOptions::optimizer, &O::schedule_file>(
          "--lr-file", "FILE", "lines of a step and the factor of the learning rate from there on",
          FlagUser::kRunAndVerify, true),
      number_flag<&O::clip_norm>("--clip-norm", "largest global gradient norm; 0 clips nothing"),
      number_flag<&O::clip_value>("--clip-value", "largest absolute value of a gradient's element; 0 clips nothing"),
      kept(read_flag("--accumulate", "K", "steps whose mean gradient makes one update", read_accumulate,
                     write_member<&O::accumulate>)),
      read_flag("--loss-scale", "X",
                "in fp16, the loss is first multiplied with this power of two for its gradients; 0: with nothing",
                read_loss_scale, write_member<&O::loss_scale>),
      read_flag("--loss-scale-growth", "N", "good updates after which the loss scale doubles", read_loss_scale_growth,
                write_member<&O::loss_scale_growth>),
      read_flag(
          "--no-main-weights", "", "updates parameters of 16 bits in 16 bits, without float32 main weights",
          [](const std::string&, RunOptions& options) {
            options.optimizer.main_weights = false;
            return true;
          },
          [](const RunOptions& options) { return write_value(!options.optimizer.main_weights); }),
      std::move(average),
      scaling_by_replicas(),
      staleness_flag(),
  };
}

std::string optimizer_flags_at_odds(const OptimizerOptions& options) {
  if (options.nesterov && options.momentum.value_or(0) == 0) return "--nesterov needs --momentum";
  const std::optional<LearningRate> rate = LearningRate::parse(options.schedule);
  if (rate && rate->end() > 0 && options.warmup >= rate->end())
    return "--warmup takes all steps of --lr-schedule " + options.schedule + ", which counts them too";
  if (!options.schedule_file.empty() && (options.schedule != "constant" || options.warmup > 0))
    return "--lr-file says the factor of every step, so that --lr-schedule and --warmup say nothing";
  return "";
}

}  // namespace graphpipe::wire
