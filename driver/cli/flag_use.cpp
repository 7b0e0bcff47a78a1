#include "driver/cli/flag_use.h"

#include <algorithm>
#include <span>

#include "driver/cli/usage.h"
#include "driver/pipeline/model_spec.h"
#include "partitioner/planner.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {
namespace {

template <typename Facts>
struct Need {
  bool (*met)(const Facts&);
  std::string_view otherwise, hint;
};

template <typename Facts>
struct FlagUse {
  /// Verbs, separated by commas; empty: all that check these facts.
  std::string_view verbs;
  std::string_view flag;
  const Need<Facts>* need;
};

template <typename Facts>
Diagnostics unmet(std::span<const FlagUse<Facts>> uses, std::string_view verb, const Options& options,
                  const Facts& facts) {
  Diagnostics problems;
  for (const FlagUse<Facts>& use : uses) {
    const std::vector<std::string_view> verbs = split(use.verbs, ",");
    if (!use.verbs.empty() && std::ranges::find(verbs, verb) == verbs.end()) continue;
    if (!options.given.contains(std::string(use.flag)) || use.need->met(facts)) continue;
    problems.push_back(usage(std::string(use.flag), std::string(use.need->otherwise), std::string(use.need->hint)));
  }
  return problems;
}

Status as_status(Diagnostics problems) {
  if (!problems.empty()) return problems;
  return Ok{};
}

// --- run, verify ---

using RunNeed = Need<RunFacts>;
constexpr RunNeed kTraining = {[](const RunFacts& facts) { return facts.trains; },
                               "the folder's plan runs forwards only and trains nothing",
                               "leave it out, or compile with a policy that trains"};
constexpr RunNeed kPeers = {[](const RunFacts& facts) { return facts.devices > 1; },
                            "the folder's plan has one device, which talks to no other", "leave it out"};
constexpr RunNeed kOthers = {[](const RunFacts& facts) { return facts.devices > 1 || facts.is_fed; },
                             "the folder's plan has one device, which waits for no other", "leave it out"};
constexpr RunNeed kServer = {[](const RunFacts& facts) { return facts.serves_parameters; },
                             "the folder's policy is not parameter-server, and no server could make its updates",
                             "leave it out, or compile with --policy parameter-server"};
constexpr RunNeed kSums = {[](const RunFacts& facts) { return !facts.trains || facts.sums_gradients; },
                           "no stage of the folder's plan has replicas that sum gradients", "leave it out"};
constexpr RunNeed kUnevenReplicas = {[](const RunFacts& facts) { return facts.has_uneven_replicas; },
                                     "all stages of the folder's plan have as many replicas as the first",
                                     "leave it out"};
constexpr RunNeed kRandom = {[](const RunFacts& facts) { return facts.random; },
                             "nothing is random: the data are given in one order, and no operator draws random numbers",
                             "leave it out, add --shuffle, or compile with --dropout on"};
constexpr RunNeed kSynchronous = {[](const RunFacts& facts) { return facts.synchronous; },
                                  "the folder's schedule is asynchronous, and is compared bit by bit only",
                                  "leave it out"};
constexpr RunNeed kCheckpoints = {[](const RunFacts& facts) { return facts.takes_checkpoints; },
                                  "the run takes no checkpoints", "name a folder for them with --checkpoint"};
constexpr RunNeed kResumed = {[](const RunFacts& facts) { return facts.resumes; }, "the run goes on from no checkpoint",
                              "leave it out, or add --resume"};

constexpr RunNeed kCpu = {[](const RunFacts& facts) { return !facts.on_gpu; }, "only the tensors of CPUs have an arena",
                          "leave out one of --no-arena and --device cuda"};
constexpr RunNeed kGpu = {[](const RunFacts& facts) { return facts.on_gpu; }, "the stages compute on CPUs",
                          "leave it out, or add --device cuda"};

constexpr RunNeed kFiles = {[](const RunFacts& facts) { return facts.reads_files; },
                            "it is about data in files, and the run reads none", "add --data, or leave it out"};

constexpr RunNeed kEvaluation = {[](const RunFacts& facts) { return facts.evaluates; },
                                 "there is nothing to evaluate on", "add --eval-data, or leave it out"};

constexpr RunNeed kOneUpdate = {[](const RunFacts& facts) { return facts.synchronous; },
                                "the folder's schedule is asynchronous: how many samples make an update is part of it",
                                "leave it out, or compile with --policy 2bw and --update"};

constexpr RunNeed kUpdatesAtEnd = {[](const RunFacts& facts) { return facts.updates_at_end; },
                                   "the folder's schedule updates weights before all gradients of a step are known",
                                   "leave it out, take --clip-value, or compile with a synchronous policy"};

constexpr RunNeed kFloat16 = {[](const RunFacts& facts) { return facts.scales_loss; },
                              "the folder's plan computes no gradient in float16, so that none is scaled",
                              "leave it out, or compile with --precision fp16"};
constexpr RunNeed kDecay = {[](const RunFacts& facts) { return !facts.trains || facts.decays; },
                            "no weight decays: the optimizer's weight decay is zero",
                            "add --weight-decay, or leave it out"};
constexpr RunNeed kWeightsOf16Bits = {[](const RunFacts& facts) { return facts.has_16_bit_weights; },
                                      "no parameter of the folder's model has 16 bits", "leave it out"};
constexpr RunNeed kWholeMainWeights = {
    [](const RunFacts& facts) { return !facts.divides_main_weights; },
    "it averages float32 main weights, of which each replica of the folder's plan keeps a part",
    "leave out --ema, pass --no-main-weights, or compile without --shard-optimizer"};

constexpr FlagUse<RunFacts> kRunUses[] = {
    {"", "--lr", &kTraining},
    {"", "--weight-decay", &kTraining},
    {"", "--clip-norm", &kTraining},
    {"", "--clip-norm", &kUpdatesAtEnd},
    {"", "--momentum", &kTraining},
    {"", "--nesterov", &kTraining},
    {"", "--betas", &kTraining},
    {"", "--eps", &kTraining},
    {"", "--group", &kTraining},
    {"", "--no-decay", &kTraining},
    {"", "--no-decay", &kDecay},
    {"", "--lr-schedule", &kTraining},
    {"", "--warmup", &kTraining},
    {"", "--lr-file", &kTraining},
    {"", "--clip-value", &kTraining},
    {"", "--accumulate", &kTraining},
    {"", "--accumulate", &kOneUpdate},
    {"", "--loss-scale", &kTraining},
    {"", "--loss-scale", &kFloat16},
    {"", "--loss-scale-growth", &kTraining},
    {"", "--loss-scale-growth", &kFloat16},
    {"", "--no-main-weights", &kTraining},
    {"", "--no-main-weights", &kWeightsOf16Bits},
    {"", "--lr-by-replicas", &kTraining},
    {"", "--lr-by-replicas", &kUnevenReplicas},
    {"", "--staleness", &kServer},
    {"", "--ema", &kTraining},
    {"", "--ema", &kWholeMainWeights},
    {"", "--save-ema", &kTraining},
    {"", "--save-gradients", &kTraining},
    {"", "--transport", &kPeers},
    {"", "--overlap-all-reduce", &kTraining},
    {"", "--overlap-all-reduce", &kSums},
    {"", "--stall-timeout", &kOthers},
    {"", "--no-arena", &kCpu},
    {"", "--no-cuda-graphs", &kGpu},
    {"", "--seed", &kRandom},
    {"", "--tolerance", &kSynchronous},
    {"", "--epochs", &kFiles},
    {"", "--shuffle", &kFiles},
    {"", "--last-batch", &kFiles},
    {"", "--pad", &kFiles},
    {"run", "--checkpoint", &kTraining},
    {"run", "--resume", &kTraining},
    {"run", "--checkpoint-every", &kCheckpoints},
    {"run", "--checkpoint-minutes", &kCheckpoints},
    {"run", "--keep", &kCheckpoints},
    {"run", "--restarts", &kCheckpoints},
    {"run", "--resume-changed", &kResumed},
    {"", "--on-anomaly", &kTraining},
    {"", "--max-loss-factor", &kTraining},
    {"", "--eval-data", &kTraining},
    {"", "--eval-every", &kEvaluation},
    {"", "--save-eval-outputs", &kEvaluation},
};

// Refuses hyperparameters that the plan's optimizer does not have.
Diagnostics foreign_numbers(const Options& options, const RunFacts& facts) {
  Diagnostics problems;
  if (!facts.trains) return problems;
  const wire::OptimizerEntry& own = wire::optimizer_named(facts.optimizer);
  for (const std::string& flag : options.given) {
    std::string others;
    for (const wire::OptimizerEntry& other : wire::optimizers())
      if (other.takes(flag)) others += (others.empty() ? "" : " or ") + std::string(other.name);
    if (others.empty() || own.takes(flag)) continue;
    const std::string known = own.flags.empty() ? "" : text("; ", own.title, " takes ", own.flags);
    problems.push_back(usage(flag, text("the folder's plan trains with ", own.title, ", which has no such number"),
                             text("leave it out, or compile with --optimizer ", others, known)));
  }
  return problems;
}

// --- the other verbs ---

using OptionNeed = Need<Options>;
constexpr OptionNeed kSearch = {[](const Options& options) { return options.plan.plan.empty(); },
                                "--plan gives the plan, and it is used as it is",
                                "leave it out, or edit the plan file"};
constexpr OptionNeed kSearchOrManual = {
    [](const Options& options) {
      const partitioner::PlannerEntry* planner = partitioner::find_planner(options.plan.planner);
      return options.plan.plan.empty() || (planner != nullptr && planner->traits.is_given);
    },
    kSearch.otherwise, kSearch.hint};
constexpr OptionNeed kSearchOrUnits = {
    [](const Options& options) { return options.plan.plan.empty() || options.foreign.is_foreign(); }, kSearch.otherwise,
    kSearch.hint};
constexpr OptionNeed kForeign = {[](const Options& options) { return options.foreign.is_foreign(); },
                                 "only profiles of other projects take it",
                                 "leave it out, or say with --profile-format whose profile it is"};
constexpr OptionNeed kLoss = {[](const Options& options) { return !options.training.loss.empty(); },
                              "without a loss nothing is computed for a batch", "add --loss"};
constexpr OptionNeed kOptimizer = {[](const Options& options) { return !runs_forwards_only(options.plan.policy); },
                                   "the policy runs forwards only and trains nothing",
                                   "leave it out, or take a policy that trains"};
constexpr OptionNeed kOwnOrder = {[](const Options& options) { return options.plan.order.file.empty(); },
                                  "--order gives the order, and it is used as it is", "leave one of them out"};
constexpr OptionNeed kOrdersStages = {
    [](const Options& options) { return options.plan.order.file.empty() || options.plan.plan.empty(); },
    kOwnOrder.otherwise, kOwnOrder.hint};
constexpr OptionNeed kSyntheticData = {[](const Options& options) { return options.run.data.folder.empty(); },
                                       "the data are given, and times do not depend on random numbers", "leave it out"};

constexpr FlagUse<Options> kOptionUses[] = {
    {"plan,compile", "--planner", &kSearchOrManual},
    {"plan,compile", "--stages", &kSearch},
    {"plan,compile", "--micro-batch", &kSearchOrUnits},
    {"plan,compile", "--replicas", &kSearch},
    {"plan,compile", "--recompute", &kSearch},
    {"plan,compile", "--shard-optimizer", &kSearch},
    {"plan,compile", "--time-limit", &kSearch},
    {"plan,compile", "--recompute", &kOptimizer},
    {"plan,compile", "--optimizer", &kOptimizer},
    {"plan,compare", "--topology", &kForeign},
    {"plan,compare", "--compat", &kForeign},
    {"plan,compare", "--micro-batches", &kForeign},
    {"plan,compare", "--machines", &kForeign},
    {"plan,compare", "--cpus", &kForeign},
    {"plan,compare", "--max-degree", &kForeign},
    {"plan,compare", "--profile-batch", &kForeign},
    {"plan,compare", "--no-replication", &kForeign},
    {"plan,compare", "--use-fewer", &kForeign},
    {"plan,compare", "--non-contiguous", &kForeign},
    {"plan,compare", "--no-traffic", &kForeign},
    {"simulate", "--profile", &kForeign},
    {"lint", "--batch", &kLoss},
    {"lint", "--precision", &kLoss},
    {"lint", "--contrastive", &kLoss},
    {"plan,compile", "--group", &kOwnOrder},
    {"plan,compile", "--backward", &kOwnOrder},
    {"plan,compile", "--vertical-sync", &kOwnOrder},
    {"plan,compile", "--update", &kOwnOrder},
    {"plan,compile", "--drain-every", &kOwnOrder},
    {"plan,compile", "--policy", &kOrdersStages},
    {"profile", "--seed", &kSyntheticData},
};

// Refuses names of files that say another format than the one that is written. Names without such an ending are fine.
Diagnostics foreign_endings(const wire::OutputOptions& output) {
  constexpr std::string_view kForeign[] = {".pt", ".pth", ".pkl", ".onnx", ".npz", ".npy", ".h5"};
  const std::pair<std::string_view, const std::string*> files[] = {{"--save", &output.save},
                                                                   {"--save-ema", &output.save_average},
                                                                   {"--save-gradients", &output.save_gradients},
                                                                   {"--save-outputs", &output.save_outputs},
                                                                   {"--save-eval-outputs", &output.save_eval_outputs}};
  Diagnostics problems;
  for (const auto& [flag, path] : files)
    if (std::ranges::any_of(kForeign, [&](std::string_view ending) { return path->ends_with(ending); }))
      problems.push_back(
          usage(std::string(flag),
                text(quoted(ModelText(*path)), " is written as safetensors, which its ending does not say"),
                "name a file .safetensors; of weights `graphpipe export` makes an ONNX model, and "
                "safetensors.torch.load_file() reads them"));
  return problems;
}

}  // namespace

Status check_run_flags(const Options& options, const RunFacts& facts) {
  Diagnostics problems = unmet<RunFacts>(kRunUses, "run", options, facts);
  for (Diagnostic& problem : foreign_numbers(options, facts)) problems.push_back(std::move(problem));
  for (Diagnostic& problem : foreign_endings(options.run.output)) problems.push_back(std::move(problem));
  if (options.given.contains("--data") && options.given.contains("--feed"))
    problems.push_back(usage("--feed", "--data says already where data come from", "give one of them"));
  if (options.given.contains("--steps") && options.given.contains("--epochs"))
    problems.push_back(usage("--epochs", "--steps says already when to end", "give one of them"));
  const std::string at_odds = wire::flags_at_odds(options.run);
  const std::string flag = at_odds.substr(0, at_odds.find(' '));
  // What a flag would need says nothing where the folder has no use for it.
  const bool is_told = std::ranges::any_of(problems, [&](const Diagnostic& told) { return told.origin.raw() == flag; });
  if (!at_odds.empty() && !is_told) problems.push_back(usage(flag, at_odds, "leave one out, or change it"));
  return as_status(std::move(problems));
}

Status check_flag_use(std::string_view verb, const Options& options) {
  return as_status(unmet<Options>(kOptionUses, verb, options, options));
}

}  // namespace graphpipe::driver
