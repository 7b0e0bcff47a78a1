#include "driver/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "driver/cli/commands.h"
#include "driver/cli/suggestion.h"
#include "driver/cli/validators.h"
#include "files/profile_formats.h"
#include "ir/cluster_presets.h"
#include "ir/plan.h"
#include "partitioner/planner.h"
#include "passes/losses/registry.h"
#include "scheduler/policies/policies.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {
namespace {

// What flags take that read a file; names_file() goes by it.
constexpr const char* kFileType = "FILE";

// One of an enumeration's names, the first to that of `last`.
template <typename Enum>
CLI::IsMember member_of(std::string_view (*name)(Enum), Enum last) {
  std::vector<std::string> names;
  for (size_t i = 0; i <= static_cast<size_t>(last); ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return CLI::IsMember(std::move(names));
}

template <typename Entries>
CLI::Validator one_of(const Entries& entries) {
  std::vector<std::string> known;
  std::string list;
  for (const auto& entry : entries) {
    known.emplace_back(entry.name);
    list += (list.empty() ? "" : "|") + known.back();
  }
  return CLI::Validator(
      [known, list](std::string& word) {
        if (std::ranges::find(known, word) != known.end()) return std::string();
        return "there is no '" + word + "'" + suggestion(word, known) + " (known: " + list + ")";
      },
      list);
}

// A flag that takes one word each time it is given, and does not swallow the words after that.
CLI::Option* repeated(CLI::App& app, std::string flag, std::vector<std::string>& words, const std::string& help) {
  return app.add_option(std::move(flag), words, help)->allow_extra_args(false);
}

void output_flags(CLI::App& app, Options& options) {
  app.add_flag("--json", options.json, "print the result as one flat JSON object");
  app.add_flag("-q,--quiet", options.quiet, "no progress and no notes");
}

// Also for verbs that find the model through a plan file, since a plan file cannot say it.
void trusted_root_flag(CLI::App& app, ModelOptions& model) {
  app.add_option("--trusted-root", model.trusted_root,
                 "a second folder that external data may lie in; links that end inside it are followed")
      ->check(CLI::ExistingDirectory);
}

void model_flags(CLI::App& app, ModelOptions& model) {
  app.add_option("model", model.model, "the ONNX model")->required()->type_name(kFileType);
  trusted_root_flag(app, model);
  repeated(app, "--bind", model.bindings, "NAME=SIZE of a symbolic dimension other than the batch");
  app.add_flag("--one-sample", model.one_sample,
               "the whole file is one sample: no dimension is the batch, or one of the fixed size 1; micro-batches "
               "are of one sample");
  app.add_flag("--accept", model.accepts_losses,
               "train the file although its exporter has left out what changes the training, such as BatchNorm");
  repeated(app, "--freeze", model.freeze, "pattern of parameter names that are not trained (* and ?)");
  app.add_option(
         "--parameters", model.parameters,
         "file of decisions, one a line: PATTERN train|freeze|tie|split|unused, NAME tie OTHER, or PATTERN padding ROW")
      ->type_name(kFileType);
  app.add_option("--batchnorm", model.batchnorm,
                 "mode of BatchNorm. train: statistics of the whole batch; micro-batch: of each micro-batch, as GPipe "
                 "does; file: as the model says. Without it train, and eval for --policy inference")
      ->check(member_of(ir::batch_norm_name, ir::BatchNormMode::kMicroBatch));
  app.add_option("--dropout", model.dropout, "whether Dropout is active")
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str("off");
}

void loss_flags(CLI::App& app, TrainingOptions& training) {
  app.add_option("--batch", training.batch, "samples of one training step")
      ->check(kOneOrMore)
      ->each([&training](const std::string&) { training.batch_given = true; });
  app.add_option(
      "--loss", training.loss,
      passes::loss_forms() +
          "; an output is one of the model's, with output:NAME its loss; a comma within a name is written %2C");
  app.add_option(
         "--contrastive", training.contrastive,
         "what a loss that compares samples with each other sees together: the whole batch, or each micro-batch")
      ->check(CLI::IsMember({"batch", "micro-batch"}));
  app.add_option("--precision", training.precision,
                 "type of matrix products, convolutions and what follows them; weights, norms, softmax, losses and "
                 "reductions are float32 in all")
      ->check(member_of(ir::precision_name, ir::Precision::kFloat16));
}

void training_flags(CLI::App& app, TrainingOptions& training) {
  loss_flags(app, training);
  app.add_option("--optimizer", training.optimizer, "decides the state that memory must hold")
      ->check(one_of(wire::optimizers()))
      ->each([&training](const std::string&) { training.optimizer_given = true; });
  app.add_option("--seed", training.seed, "seed of everything random")
      ->check(kWhole64)
      ->each([&training](const std::string&) { training.seed_given = true; });
  app.add_option("--threads", training.threads, "threads of each stage; part of the plan, since kernels depend on it")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}));
}

// What every planner is asked, whichever is used.
void problem_flags(CLI::App& app, PlanOptions& plan) {
  std::string presets;
  for (const ir::ClusterPreset& preset : ir::cluster_presets()) presets += text(", ", preset.name);
  app.add_option("--cluster", plan.cluster,
                 text("cluster file, or a name", presets,
                      ", default (documented constants); without it this machine, calibrated"))
      ->type_name(text(kFileType, "|NAME"));
  app.add_option("--devices", plan.devices, "this many devices: processes of this machine, or the first of the cluster")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--memory", plan.memory,
                 "bytes of each device, such as 16e9 or 16GiB, in place of what the machine or the "
                 "profile has")
      ->transform(kBytes);
  app.add_option("--bandwidth", plan.bandwidth,
                 "bytes per second of the outermost links (between machines, or the devices of one), such as 25e9 or "
                 "25GB, in place of what they have")
      ->transform(kLinkSpeed);
  app.add_option("--stages", plan.stages, "use exactly this many stages")->check(kOneOrMore);
  app.add_option("--micro-batch", plan.micro_batch,
                 "samples of a micro-batch; auto: the best size for all stages; per-stage: also sizes that differ");
  repeated(app, "--replicas", plan.replicas, "STAGE=D: give a stage D replicas");
  app.add_option(
         "--execute", plan.execute,
         "how stages wait for each other. graph: for those that they read from; chain: each for the one before "
         "it, and what skips stages passes through them, as sequential pipelines do; without it graph, and chain "
         "for policies that order chains only, such as v-half")
      ->check(member_of(ir::execution_name, ir::Execution::kChain));
  app.add_option("--recompute", plan.recompute, "stages that compute activations again; auto: where memory asks for it")
      ->check(member_of(partitioner::recompute_name, partitioner::Recompute::kNever));
  app.add_flag(
      "--shard-optimizer", plan.shard_optimizer,
      "replicas of a stage divide the optimizer's state: each updates a part of every weight and sends it to the "
      "others (ZeRO-1)");
  app.add_option("--profile", plan.profile, "measured prices, from `graphpipe profile`")->type_name(kFileType);
  app.add_option("--time-limit", plan.time_limit,
                 "seconds to search for a plan, 0 for no limit; the best so far is used")
      ->check(kNotNegative);
}

void order_flags(CLI::App& app, OrderOptions& order) {
  app.add_option("--group", order.group, "interleaved: micro-batches per group")->check(kOneOrMore);
  app.add_option("--backward", order.backward, "gpipe: order of the backwards")
      ->check(CLI::IsMember({"fifo", "lifo"}))
      ->default_str("fifo");
  app.add_flag("--vertical-sync", order.vertical_sync, "pipedream: weights of one age in all stages");
  app.add_option("--update", order.update, "2bw: samples of one update")->check(kOneOrMore);
}

void drain_flag(CLI::App& app, OrderOptions& order) {
  app.add_option("--drain-every", order.drain_every,
                 "asynchronous policies: batches before the pipeline drains; up to 16 without it")
      ->check(CLI::Range(int64_t{1}, ir::kMaxDrainEvery));
}

void planning_flags(CLI::App& app, PlanOptions& plan) {
  app.add_option("--planner", plan.planner, "rule that cuts the model into stages")
      ->check(one_of(partitioner::planners()));
  app.add_option("--policy", plan.policy, "rule that orders each device's work")
      ->check(one_of(scheduler::all_policies()));
  order_flags(app, plan.order);
  app.add_option(
         "--order", plan.order.file,
         "a schedule file, PyTorch's CSV or ours: the order in which the devices compute, instead of a policy's; "
         "messages, slots and updates are added")
      ->type_name(kFileType);
  drain_flag(app, plan.order);
  app.add_option("--plan", plan.plan, "a plan file, or a folder that holds one, checked and used as given")
      ->type_name(kFileType);
  problem_flags(app, plan);
}

CLI::Option* format_flag(CLI::App& app, ForeignOptions& foreign, const std::string& help) {
  std::vector<std::string> names{kOwnProfileFormat};
  for (const files::ProfileFormatEntry& format : files::profile_formats()) names.emplace_back(format.name);
  return app.add_option("--profile-format", foreign.format, help)->check(CLI::IsMember(names));
}

void foreign_flags(CLI::App& app, ForeignOptions& foreign) {
  auto* format = format_flag(app, foreign, "what --profile is: ours, or one of another project without a model");
  const auto add = [&](const std::string& flag, auto& value, const std::string& help) {
    return app.add_option(flag, value, help)->group("Profiles of other projects")->needs(format);
  };
  add("--topology", foreign.topology, "levels of the machine, innermost first: COUNT@BYTES_PER_SECOND,...");
  add("--compat", foreign.compat, "quirks of the original program to reproduce: all, or names such as PD2,PD4");
  add("--micro-batches", foreign.micro_batches, "micro-batches of a step")->check(kOneOrMore);
  add("--machines", foreign.machines, "devices up to the end of each machine: 8,16");
  add("--cpus", foreign.cpus, "CPUs that take layers too")->check(CLI::Range(int64_t{0}, int64_t{4096}));
  add("--max-degree", foreign.max_degree, "largest tensor-parallel degree")->check(kOneOrMore);
  add("--profile-batch", foreign.profile_batch, "samples of the profiled mini-batch")->check(kOneOrMore);
  const auto flag = [&](const std::string& name, bool& value, const std::string& help) {
    app.add_flag(name, value, help)->group("Profiles of other projects")->needs(format);
  };
  flag("--no-replication", foreign.no_replication, "one device per stage");
  flag("--use-fewer", foreign.use_fewer, "devices may stay idle");
  flag("--non-contiguous", foreign.non_contiguous, "a device may hold several runs of layers (max-throughput)");
  flag("--no-traffic", foreign.no_traffic, "planners count no traffic between stages; steps do");
}

void standalone_flags(CLI::App& app, ScheduleOptions& schedule) {
  app.add_option("--costs", schedule.costs, "F,I,W: cost of one micro-batch on one stage; a B costs I + W");
  app.add_option("--latency", schedule.latency, "of a message between devices")
      ->check(kNotNegative)
      ->check(CLI::Range(0.0, 1e6));
}

// A flag of the table that the device programs read too (wire/run_options.h).
void run_option_flag(CLI::App& app, const wire::RunFlag& flag, wire::RunOptions& run) {
  if (flag.is_switch()) {
    app.add_flag_callback(
        flag.name, [&flag, &run] { flag.read("", run); }, flag.help);
    return;
  }
  const auto read = [&flag, &run](const std::string& word) {
    if (!flag.read(word, run))
      throw CLI::ValidationError(flag.name, text("'", word, "' is not ", flag.value_words(), ": ", flag.help));
  };
  CLI::Option* option = nullptr;
  if (flag.repeats) {
    const auto read_all = [read](const std::vector<std::string>& words) { std::ranges::for_each(words, read); };
    option = app.add_option_function<std::vector<std::string>>(flag.name, read_all, flag.help)->allow_extra_args(false);
  } else {
    option = app.add_option_function<std::string>(flag.name, read, flag.help);
  }
  option->type_name(flag.value_name)->default_str(flag.default_word());
}

void run_option_flags(CLI::App& app, wire::FlagUser user, wire::RunOptions& run) {
  for (const wire::RunFlag& flag : wire::run_flags())
    if (flag.user >= user) run_option_flag(app, flag, run);
}

void config_flag(CLI::App& app, Options& options) {
  app.add_option("--config", options.config, "TOML file with flags of this verb; those that are typed win")
      ->type_name(kFileType);
}

void run_config_flag(CLI::App& app, wire::FlagUser user, Options& options) {
  options.config_user = user;
  app.add_option("--config", options.config, "TOML file with flags of `run`; those that are typed win")
      ->type_name(kFileType);
}

void folder_flags(CLI::App& app, Options& options) {
  app.add_option("-o,--output", options.output, "folder to write")->required();
  app.add_flag("--bundle", options.bundle, "put the runtime's sources beside the stages: builds anywhere");
  app.add_flag("--link-weights", options.link_weights,
               "share the model's data files by hard links, in place of copies");
}

}  // namespace

bool names_file(const CLI::Option& option) { return option.get_type_name().starts_with(kFileType); }

void inspect_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  output_flags(app, options);
}

void lint_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  loss_flags(app, options.training);
  output_flags(app, options);
}

void profile_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  training_flags(app, options.training);
  options.run.data.steps = 200;
  app.add_option("--data", options.run.data.folder,
                 "folder with one NAME.npy per input and label; else synthetic data");
  app.add_option("--steps", options.run.data.steps, "most timed steps of each number of samples")->check(kOneOrMore);
  for (const wire::RunFlag& flag : wire::run_flags())
    if (flag.name == std::string_view("--device")) run_option_flag(app, flag, options.run);
  app.add_option("--keep", options.keep, "folder to write the measuring program to, and to leave it in");
  app.add_option("-o,--output", options.output, "profile file to write")->required();
  output_flags(app, options);
}

void plan_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  training_flags(app, options.training);
  planning_flags(app, options.plan);
  foreign_flags(app, options.foreign);
  app.get_option("model")->required(false);
  app.add_option("-o,--output", options.output, "plan file to write");
  config_flag(app, options);
  output_flags(app, options);
}

void compare_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  training_flags(app, options.training);
  options.policies = options.plan.policy;
  app.add_option("--planners", options.planners, "names of planners, separated by commas; without it, all that search");
  app.add_option("--policies", options.policies, "names of policies, separated by commas");
  drain_flag(app, options.plan.order);
  problem_flags(app, options.plan);
  foreign_flags(app, options.foreign);
  app.get_option("model")->required(false);
  config_flag(app, options);
  output_flags(app, options);
}

void simulate_flags(CLI::App& app, Options& options) {
  app.add_option("plan", options.input, "plan file, or a folder that holds one")->required();
  trusted_root_flag(app, options.model);
  app.add_option("--format", options.format, "what to draw")->check(CLI::IsMember({"text", "svg", "trace"}));
  app.add_option("-o,--output", options.output, "file to write the drawing to");
  app.add_option("--execute", options.plan.execute,
                 "graph or chain, not as the plan says: ordered anew by its policy, with the policy's defaults")
      ->check(member_of(ir::execution_name, ir::Execution::kChain));
  auto* format = format_flag(app, options.foreign, "of a plan for a profile of another project: what the profile is");
  app.add_option("--profile", options.plan.profile, "that profile, where it is no longer where the plan says")
      ->type_name(kFileType)
      ->needs(format);
  app.add_option("--executed", options.executed,
                 "with --format trace: a trace of `run` to put beside the simulated one")
      ->type_name(kFileType);
  output_flags(app, options);
}

void report_flags(CLI::App& app, Options& options) {
  app.add_option("plans", options.inputs,
                 "plan files, or folders that hold one; several are compared; or the table.json or folder of one sweep")
      ->required();
  trusted_root_flag(app, options.model);
  app.add_option("-o,--output", options.output, "file to write")->required();
  options.format = "html";
  app.add_option("--format", options.format, "html: the whole page; svg, dot: the graph of stages of one plan alone")
      ->check(CLI::IsMember({"html", "svg", "dot"}));
  app.add_option("--measured", options.measured, "what `run --log FILE.jsonl` of the one plan wrote")
      ->type_name(kFileType);
  output_flags(app, options);
}

void schedule_flags(CLI::App& app, Options& options) {
  ScheduleOptions& schedule = options.schedule;
  app.add_option("--policy", schedule.policy, "rule that orders each device's work")
      ->check(one_of(scheduler::all_policies()));
  app.add_option("--ranks", schedule.ranks, "devices")->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--chunks", schedule.chunks, "stages on each device")->check(CLI::Range(int64_t{1}, int64_t{1024}));
  app.add_option("--micro-batches", schedule.micro_batches, "micro-batches of a step")->check(kOneOrMore);
  order_flags(app, schedule.order);
  app.add_flag("--search", schedule.search, "improve the order by a search");
  app.add_option("--dag", schedule.dag,
                 "stage graph file; what it says wins over --costs, and no other flag may say it")
      ->type_name(kFileType);
  standalone_flags(app, schedule);
  app.add_option("--format", options.format, "what to print; ir: our text, proto: our file, pb: the same as binary")
      ->check(CLI::IsMember({"text", "csv", "csv-comms", "json", "svg", "trace", "ir", "proto", "pb"}));
  app.add_option("-o,--output", options.output, "file to write it to");
  output_flags(app, options);
}

void check_flags(CLI::App& app, Options& options) {
  app.add_option("schedule", options.input, "schedule: PyTorch's CSV, or any of our forms")->required();
  standalone_flags(app, options.schedule);
  app.add_option("--claim", options.schedule.claims, "what the schedule does with weight versions, to be proven")
      ->delimiter(',')
      ->check(CLI::IsMember({"synchronous", "vertical-sync", "2bw"}));
  app.add_option("--max-versions", options.schedule.max_versions, "weight versions that a stage holds at most")
      ->check(CLI::Range(1, 1 << 20));
  output_flags(app, options);
}

void generate_flags(CLI::App& app, Options& options) {
  app.add_option("plan", options.input, "plan file")->required();
  trusted_root_flag(app, options.model);
  folder_flags(app, options);
  output_flags(app, options);
}

void build_flags(CLI::App& app, Options& options) {
  app.add_option("folder", options.input, "generated folder")->required();
  output_flags(app, options);
}

void compile_flags(CLI::App& app, Options& options) {
  model_flags(app, options.model);
  training_flags(app, options.training);
  planning_flags(app, options.plan);
  folder_flags(app, options);
  config_flag(app, options);
  output_flags(app, options);
}

void run_flags(CLI::App& app, Options& options) {
  app.add_option("folder", options.input, "compiled folder; with --pace also a plan file")->required();
  run_option_flags(app, wire::FlagUser::kRun, options.run);
  app.add_flag("--pace", options.pace,
               "instead of computing, each action pauses as long as it is planned to take; compares the steps with the "
               "simulated one");
  app.add_option("--pace-scale", options.pace_scale,
                 "with --pace: all times are X times as long (chosen, so that pauses outweigh overheads)")
      ->check(CLI::Range(1e-3, 1e6))
      ->type_name("X");
  app.add_option("--pace-bytes", options.pace_bytes,
                 "with --pace: the part of their bytes that messages have, in times of whole ones (chosen; 1: all)")
      ->check(CLI::Range(1e-6, 1.0))
      ->type_name("X");
  trusted_root_flag(app, options.model);
  app.add_option("--restarts", options.restarts,
                 "how often the run starts again from its last checkpoint where a device dies (0)")
      ->check(CLI::Range(0, 1000));
  run_config_flag(app, wire::FlagUser::kRun, options);
  app.add_option("--write-config", options.write_config, "writes the flags that are used, as such a file");
  output_flags(app, options);
}

void verify_flags(CLI::App& app, Options& options) {
  app.add_option("folder", options.input, "compiled folder")->required();
  trusted_root_flag(app, options.model);
  run_option_flags(app, wire::FlagUser::kRunAndVerify, options.run);
  run_config_flag(app, wire::FlagUser::kRunAndVerify, options);
  app.add_option("--tolerance", options.tolerance,
                 "relative difference of a tensor that counts as rounding (1e-4; 1e-2 and 5e-2 in 16 bits)")
      ->check(kNotNegative);
  output_flags(app, options);
}

void export_flags(CLI::App& app, Options& options) {
  app.add_option("folder", options.input, "compiled folder, or plan file")->required();
  trusted_root_flag(app, options.model);
  app.add_option("--weights", options.run.data.weights, "what `run --save` of this model wrote")
      ->required()
      ->type_name(kFileType);
  app.add_option(
         "-o,--output", options.output,
         "FILE.onnx: the model with these weights; FILE.safetensors: the weights under the names of the module, "
         "shared ones under each of theirs")
      ->required();
  output_flags(app, options);
}

void sweep_flags(CLI::App& app, Options& options) {
  app.add_option("file", options.input, "TOML file with the flags and their values")->required();
  app.add_option("-o,--output", options.output, "folder for the results; those that it has are kept")->required();
  app.add_option("--jobs", options.jobs, "plans that are made at a time (as many as the machine has cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option(
      "--plot", options.plot,
      "X,Y or X,Y,LINE: what plot.svg draws, two axes and a column of the table, in place of the file's [plot]");
  output_flags(app, options);
}

void completion_flags(CLI::App& app, Options& options) {
  app.add_option("shell", options.input, "the shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  output_flags(app, options);
}

void manual_flags(CLI::App& app, Options& options) {
  std::vector<std::string> verbs;
  for (const CommandEntry& entry : all_commands()) verbs.emplace_back(entry.name);
  app.add_option("verb", options.input, "the verb; without it the page of graphpipe itself")
      ->check(CLI::IsMember(verbs));
  options.format = "man";
  app.add_option("--format", options.format, "what to print; markdown: all verbs in one page")
      ->check(CLI::IsMember({"man", "markdown"}));
  app.add_option("-o,--output", options.output, "folder to write all man pages to, graphpipe.1 and one for each verb");
  output_flags(app, options);
}

}  // namespace graphpipe::driver
