// graphpipe verify: checks in two ways that the pipeline computes what one process computes.
//
// Bitwise: the pipeline against the serial interpreter of the same plan. By tolerance: every step of the interpreter,
// and so of the pipeline, against the unpartitioned model, which begins the step with the same weights. The
// unpartitioned model is one stage in one process and takes the full batch at once, or the plan's micro-batches where
// samples mix.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/launch/build_folder.h"
#include "driver/launch/check_run.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/folder_lock.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "driver/launch/program_folder.h"
#include "driver/launch/unpack_data.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/compare_tensors.h"
#include "driver/report/report.h"
#include "driver/report/run_report.h"
#include "driver/report/tolerances.h"
#include "driver/verbs/generate.h"
#include "partitioner/batch_stages.h"
#include "partitioner/planner.h"
#include "wire/exit_codes.h"
#include "wire/optimizers.h"
#include "wire/weight_parts.h"

namespace graphpipe::driver {
namespace {

struct TrainingResult {
  std::vector<double> losses;
  bool scales_loss = false;
  /// With a loss scale: the steps that made no update because of it.
  std::vector<double> skipped_steps;
  std::string weights, gradients;  // files
  std::string steps;               // folder with what each step of the interpreters began and ended with
  std::string outputs;             // of forward-only plans
};

struct WorstOfSteps {
  Comparison comparison;
  int64_t step = 0;  // from 1; 0: before the first
};

struct Verdict {
  bool bitwise = false;
  /// Asynchronous schedules apply gradients of older weights: no unpartitioned run computes the same.
  bool compared = true;
  bool by_tolerance = false;
  /// Nothing is trained: outputs are compared instead of gradients.
  bool forward_only = false;
  Tolerances tolerance;
  /// Both runs skip the update of the same steps. The reference takes the loss scales of the serial run, or smaller
  /// ones where the whole batch needs them (runtime/reference/step_records.h).
  bool same_skips = true;
  double loss_difference = 0;
  size_t worst_step = 0;  // of the loss, from 1
  WorstOfSteps gradients, weights;
  Comparison outputs;
  /// Training steps whose gradients were compared: they are finite, and not the zeros of a skipped update.
  int64_t compared_steps = 0;
  /// Forward-only programs have outputs, a loss, or neither.
  bool has_outputs_or_loss = true;
  bool compares_nothing() const { return forward_only ? !has_outputs_or_loss : compared_steps == 0; }
  bool passed() const { return bitwise && (by_tolerance || !compared); }
};

// `run` says which one it was: "the run of the pipeline".
Result<TrainingResult> finish(Result<RunOutcome> outcome, std::string_view run, const std::string& folder,
                              TrainingResult files) {
  if (!outcome) return outcome.problems();
  if (outcome->exit_code != wire::kExitOk) return failed_run(*outcome, run, folder);
  GP_TRY(files.losses, report_numbers(outcome->report, "losses"));
  files.scales_loss = report_numbers(outcome->report, "loss_scales").ok();
  if (Result<std::vector<double>> skipped = report_numbers(outcome->report, "skipped_steps"))
    files.skipped_steps = *std::move(skipped);
  return files;
}

// The options of a run that saves its tensors in the folder that is verified.
wire::RunOptions run_options(const Options& options, const ir::Plan& plan, const TrainingResult& files) {
  wire::RunOptions run = for_programs(options.run, plan, true);
  run.output.save = std::filesystem::absolute(files.weights);
  run.output.save_gradients = std::filesystem::absolute(files.gradients);
  if (!files.outputs.empty()) run.output.save_outputs = std::filesystem::absolute(files.outputs);
  return run;
}

// Whether there are outputs to save. An output without an axis of samples is in no file; the loss stands for it.
bool saves_outputs(const Pipeline& pipeline) {
  const ir::Graph& graph = pipeline.model.graph;
  return is_forward_only(pipeline.built.schedule) &&
         std::ranges::any_of(graph.outputs(),
                             [&](const ir::Output& output) { return ir::joins_samples(graph, output); });
}

TrainingResult files_named(const std::string& place, const std::string& name, const Pipeline& pipeline) {
  const std::string stem = place + "/" + name;
  return {.losses = {},
          .scales_loss = false,
          .skipped_steps = {},
          .weights = stem + ".weights.safetensors",
          .gradients = stem + ".gradients.safetensors",
          .steps = is_forward_only(pipeline.built.schedule) ? "" : stem + ".steps",
          .outputs = saves_outputs(pipeline) ? stem + ".outputs.safetensors" : ""};
}

Diagnostic no_reference() {
  return {.code = Code::kBadPlan,
          .message =
              "nodes that work on the samples of a micro-batch together have micro-batches of different sizes, so no "
              "unpartitioned run computes the same",
          .hint = "give their stages one micro-batch size"};
}

// The micro-batch size of the nodes that work on all samples of a micro-batch together; none if there are no such
// nodes.
Result<std::optional<Samples>> shared_micro_batch(const Pipeline& pipeline) {
  std::optional<Samples> size;
  for (const ir::PlanNodeId node : pipeline.priced.node_ids()) {
    if (pipeline.priced.nodes[node].scope != ir::SampleScope::kMicroBatch) continue;
    const ir::Assignment& plan = pipeline.plan.assignment;
    const Samples own = plan.choice[plan.stage_of[node]].micro_batch;
    if (size && *size != own) return no_reference();
    size = own;
  }
  return size;
}

// The unpartitioned model: every node in one stage on one device, with another micro-batch size than the pipeline's
// stages. Where nodes work on all samples of a micro-batch together, its size is part of what is computed and stays;
// nodes that work on the whole batch then form a second stage.
Result<ir::Assignment> reference_assignment(const Pipeline& pipeline) {
  const ir::PlanGraph& graph = pipeline.priced;
  const Samples batch = pipeline.plan.batch;
  GP_TRY(const std::optional<Samples> shared, shared_micro_batch(pipeline));
  const auto is_whole = [&](const ir::Stage& stage) { return stage.choice.micro_batch == batch; };
  const bool at_once = std::ranges::all_of(pipeline.stages.stages, is_whole);
  Samples size = shared.value_or(batch);
  // A pipeline that takes the whole batch at once is compared with halves of the batch: a model that has a batch size
  // baked in, or that mixes samples without being known to, then computes something else.
  if (!shared && !graph.has_batch_scope() && at_once) size = Samples((batch.count + 1) / 2);
  ir::Assignment reference;
  reference.stage_of.resize(graph.nodes.size(), ir::StageId(0));
  reference.choice.push_back({.devices = {ir::DeviceId(0)}, .micro_batch = size});
  if (!graph.has_batch_scope() || size == batch) return reference;
  const ir::StageId whole = reference.choice.push_back({.devices = {ir::DeviceId(0)}, .micro_batch = batch});
  for (const ir::PlanNodeId node : partitioner::batch_nodes_and_below(graph)) {
    if (graph.nodes[node].scope == ir::SampleScope::kMicroBatch) return no_reference();
    reference.stage_of[node] = whole;
  }
  return reference;
}

Result<Pipeline> reference_pipeline(const Pipeline& pipeline) {
  Pipeline reference;
  reference.plan = pipeline.plan;
  reference.model = pipeline.model;
  GP_TRY(reference.plan.assignment, reference_assignment(pipeline));
  reference.plan.planner = partitioner::kManual;
  // Most policies are not defined for a single stage, where they could only decide the order of its micro-batches.
  reference.plan.policy = is_forward_only(pipeline.built.schedule) ? "inference" : "kfkb";
  // A model may be cut because it does not fit one device; the uncut model must be planned all the same.
  reference.plan.cluster = ir::equal_devices(1);
  reference.plan.cluster.devices[ir::DeviceId(0)].memory = Bytes(int64_t{1} << 50);
  reference.plan.schedule.reset();
  reference.priced = pipeline.priced;
  GP_TRY_VOID(derive(reference));
  return reference;
}

Result<TrainingResult> run_reference(const Options& options, const std::string& place, const Pipeline& pipeline,
                                     const TrainingResult& serial) {
  const std::string folder = place + "/reference";
  GP_TRY(const Pipeline reference, reference_pipeline(pipeline));
  GP_TRY(const FolderLock lock, FolderLock::take(folder));
  // As the folder itself was generated.
  std::error_code error;
  const auto names = std::filesystem::hard_link_count(options.input + "/" + wire::weight_data_file(0), error);
  GP_TRY_VOID(generate_folder(
      reference, folder,
      {.bundle = std::filesystem::exists(options.input + "/runtime"), .link_weights = !error && names > 1}));
  GP_TRY_VOID(build_folder(folder, options));
  TrainingResult files = files_named(place, "reference", pipeline);
  wire::RunOptions run = run_options(options, reference.plan, files);
  if (!serial.steps.empty()) {
    run.output.follow_steps = std::filesystem::absolute(serial.steps);
    run.output.record_steps = std::filesystem::absolute(files.steps);
    std::filesystem::create_directories(files.steps);
  }
  return finish(launch_serial(folder, run), "the run of the unpartitioned model", options.input, files);
}

// The largest relative difference of a loss, and its step.
void compare_losses(const std::vector<double>& a, const std::vector<double>& b, Verdict& verdict) {
  if (a.size() != b.size()) verdict.loss_difference = INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    // In float16 both may skip a step whose loss is not a number.
    const bool are_same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    double difference = are_same ? 0 : std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-30);
    if (std::isnan(difference)) difference = INFINITY;
    if (difference <= verdict.loss_difference) continue;
    verdict.loss_difference = difference;
    verdict.worst_step = i + 1;
  }
}

// What the rule of compare_tensors.h needs to know of the optimizer: its hyperparameters.
UpdateNoise update_noise(const wire::RunOptions& run, const std::string& optimizer) {
  const wire::OptimizerNumbers numbers = wire::numbers_of(wire::optimizer_named(optimizer), run.optimizer);
  return {.learning_rate = numbers.learning_rate,
          .momentum = numbers.momentum,
          .beta1 = numbers.beta1,
          .beta2 = numbers.beta2,
          .epsilon = numbers.epsilon};
}

void keep_worst(Comparison comparison, int64_t step, WorstOfSteps& worst) {
  if (!is_worse(comparison, worst.comparison)) return;
  worst = {.comparison = std::move(comparison), .step = step};
}

// Whether the step overflows in float16 in both runs, so that there are no finite gradients to compare. This is seen
// only of a step within an accumulated update; the gradients of a step whose update was skipped are recorded as zeros.
Result<bool> both_overflow(const TrainingResult& serial, const TrainingResult& reference, int64_t step) {
  if (!serial.scales_loss) return false;
  for (const TrainingResult* run : {&serial, &reference}) {
    GP_TRY(const bool finite, all_finite(wire::step_file(run->steps, step, "gradients")));
    if (finite) return false;
  }
  return true;
}

// Such a step must change no weights. Both runs begin it with the weights that the serial run had before it.
Status compare_unchanged(const TrainingResult& run, const TrainingResult& serial, int64_t step, WorstOfSteps& weights) {
  GP_TRY(Comparison change, compare_tensors(wire::step_file(run.steps, step, "weights"),
                                            wire::step_file(serial.steps, step - 1, "weights"), {.usual = 0}));
  keep_worst(std::move(change), step, weights);
  return Ok{};
}

// Both runs begin every step with the same weights.
Status compare_steps(const TrainingResult& serial, const TrainingResult& reference, const wire::RunOptions& run,
                     const std::string& optimizer, Verdict& verdict) {
  // Both runs start from copies of the model's weights, which must not differ at all.
  GP_TRY(Comparison start, compare_tensors(wire::step_file(serial.steps, 0, "weights"),
                                           wire::step_file(reference.steps, 0, "weights"), {.usual = 0}));
  keep_worst(std::move(start), 0, verdict.weights);
  UpdateNoise noise = update_noise(run, optimizer);
  for (int64_t step = 1; step <= run.data.steps; ++step) {
    const auto compare = [&](const std::string& kind, const UpdateNoise& explained) {
      return compare_tensors(wire::step_file(serial.steps, step, kind), wire::step_file(reference.steps, step, kind),
                             verdict.tolerance.tensors, explained);
    };
    GP_TRY(const bool overflows, both_overflow(serial, reference, step));
    if (overflows) {
      GP_TRY_VOID(compare_unchanged(serial, serial, step, verdict.weights));
      GP_TRY_VOID(compare_unchanged(reference, serial, step, verdict.weights));
      continue;
    }
    verdict.compared_steps += std::ranges::count(serial.skipped_steps, step) == 0;
    GP_TRY(Comparison gradients, compare("gradients", {}));
    if (wire::optimizer_named(optimizer).mixes_elements) {
      GP_TRY_VOID(keep_largest_differences(wire::step_file(serial.steps, step, "gradients"),
                                           wire::step_file(reference.steps, step, "gradients"),
                                           noise.gradient_differences));
    }
    const bool normalises = wire::optimizer_named(optimizer).normalises;
    (normalises ? noise.second_moments : noise.gradients) =
        wire::step_file(reference.steps, step, normalises ? "second_moments" : "gradients");
    noise.before = wire::step_file(serial.steps, step - 1, "weights");
    noise.scales = wire::step_file(reference.steps, step, "update_scales");
    GP_TRY(Comparison weights, compare("weights", noise));
    keep_worst(std::move(gradients), step, verdict.gradients);
    keep_worst(std::move(weights), step, verdict.weights);
  }
  return Ok{};
}

// Removes the recorded steps before and after the comparison: every one of them holds a copy of the weights.
class StepFolders {
 public:
  explicit StepFolders(std::string place) : place_(std::move(place)) { remove(); }
  StepFolders(const StepFolders&) = delete;
  StepFolders& operator=(const StepFolders&) = delete;
  ~StepFolders() { remove(); }

 private:
  void remove() const {
    std::error_code ignored;
    if (place_.empty()) return;
    for (const char* run : {"serial", "reference"}) std::filesystem::remove_all(place_ + "/" + run + ".steps", ignored);
  }
  std::string place_;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

Status compare_with_reference(const Options& options, const std::string& place, const Pipeline& pipeline,
                              const TrainingResult& serial, const wire::RunOptions& run, Verdict& verdict) {
  GP_TRY(const TrainingResult reference, run_reference(options, place, pipeline, serial));
  verdict.tolerance = tolerances_of(pipeline.model.graph, options.tolerance, run.optimizer.clip_norm > 0);
  compare_losses(serial.losses, reference.losses, verdict);
  verdict.same_skips = serial.skipped_steps == reference.skipped_steps;
  if (verdict.forward_only) {
    verdict.has_outputs_or_loss = !serial.outputs.empty() || !serial.losses.empty();
    if (!serial.outputs.empty()) {
      GP_TRY(verdict.outputs, compare_tensors(serial.outputs, reference.outputs, verdict.tolerance.tensors));
    }
  } else {
    GP_TRY_VOID(compare_steps(serial, reference, run, pipeline.plan.spec.optimizer, verdict));
  }
  verdict.by_tolerance = verdict.same_skips && !verdict.compares_nothing() &&
                         verdict.loss_difference <= verdict.tolerance.loss && verdict.gradients.comparison.passed() &&
                         verdict.weights.comparison.passed() && verdict.outputs.passed();
  return Ok{};
}

Result<Verdict> verify(Options options) {
  GP_TRY(const Pipeline pipeline, load_pipeline(options.input, options.model.trusted_root));
  GP_TRY(const RunFacts facts, run_facts(options.input, pipeline.plan, options.run));
  GP_TRY_VOID(check_run_flags(options, facts));
  GP_TRY(const HeldData held, unpack_data(options.input, options.run, options.quiet));
  const Diagnostics found = check_run_files(options.input, options.run);
  if (has_error(found)) return found;
  report_run_notes(options, found);
  GP_TRY(options.run, in_steps(options.input, options.run, options.run.data));
  GP_TRY(const ProgramFolder folder, ProgramFolder::make_within(options.input, "verify"));
  const std::string& place = folder.path();
  TrainingResult pipelined = files_named(place, "pipeline", pipeline), serial = files_named(place, "serial", pipeline);
  const wire::RunOptions run = run_options(options, pipeline.plan, pipelined);
  GP_TRY(pipelined,
         finish(launch_devices(options.input, static_cast<int>(pipeline.built.schedule.programs.size()), run, false),
                "the run of the pipeline", options.input, pipelined));
  Verdict verdict;
  verdict.compared = !ir::is_asynchronous(pipeline.built.schedule);
  wire::RunOptions serial_run = run_options(options, pipeline.plan, serial);
  const StepFolders steps(verdict.compared ? place : "");
  if (verdict.compared && !serial.steps.empty()) {
    std::filesystem::create_directories(serial.steps);
    serial_run.output.record_steps = std::filesystem::absolute(serial.steps);
  }
  GP_TRY(serial,
         finish(launch_serial(options.input, serial_run), "the run of the serial interpreter", options.input, serial));
  GP_TRY(const bool same_weights, same_bytes(pipelined.weights, serial.weights));
  GP_TRY(const bool same_gradients, same_bytes(pipelined.gradients, serial.gradients));
  verdict.forward_only = is_forward_only(pipeline.built.schedule);
  bool same_outputs = true;
  if (!serial.outputs.empty()) {
    GP_TRY(same_outputs, same_bytes(pipelined.outputs, serial.outputs));
  }
  verdict.bitwise = same_weights && same_gradients && same_outputs && same_bits(pipelined.losses, serial.losses);
  if (!verdict.compared) return verdict;

  GP_TRY_VOID(compare_with_reference(options, place, pipeline, serial, run, verdict));
  return verdict;
}

void add_worst(JsonObject& object, const std::string& kind, const Comparison& comparison, int64_t step) {
  object.add(kind + "_difference", comparison.difference);
  if (!comparison.worst) return;
  object.add("worst_" + kind + "_tolerance", comparison.tolerance);
  object.add("worst_" + kind, comparison.worst->tensor.raw()).add("worst_" + kind + "_index", comparison.worst->index);
  object.add("worst_" + kind + "_found", comparison.worst->found);
  object.add("worst_" + kind + "_expected", comparison.worst->expected);
  if (step >= 0) object.add("worst_" + kind + "_step", step);
}

// For people; --json has all digits. Values get enough digits to tell two float32 numbers apart.
constexpr int kValueDigits = 9;
std::string rounded(double number, int digits = 3) { return fmt::format("{:.{}g}", number, digits); }

std::string looser_words(const TensorTolerance& tolerance) {
  if (tolerance.looser.empty()) return "";
  double loosest = 0;
  for (const auto& [name, allowed] : tolerance.looser) loosest = std::max(loosest, allowed);
  return text(", up to ", rounded(loosest), " of the ", tolerance.looser.size(), " that 16-bit numbers take part in");
}

void print_worst(std::string_view kind, const Comparison& comparison, int64_t step) {
  std::cout << "  " << kind << ": " << rounded(comparison.difference);
  if (step > 0) std::cout << " at step " << step;
  if (step == 0 && comparison.worst) std::cout << " before the first step";
  if (const std::optional<WorstElement>& worst = comparison.worst; worst && worst->index.empty())
    std::cout << ", " << quoted(worst->tensor) << " is not in both, or has another shape";
  else if (worst)
    std::cout << ", in " << quoted(worst->tensor) << worst->index << ": " << rounded(worst->found, kValueDigits)
              << " in the pipeline, " << rounded(worst->expected, kValueDigits) << " in one process";
  std::cout << "\n";
}

void print(const Options& options, const Verdict& verdict) {
  if (options.json) {
    JsonObject object;
    object.add("bitwise", verdict.bitwise).add("asynchronous", !verdict.compared);
    if (verdict.compared) {
      object.add("by_tolerance", verdict.by_tolerance).add("same_skipped_steps", verdict.same_skips);
      if (!verdict.forward_only) object.add("compared_steps", verdict.compared_steps);
      object.add("loss_difference", verdict.loss_difference).add("worst_loss_step", verdict.worst_step);
      add_worst(object, "gradient", verdict.gradients.comparison, verdict.gradients.step);
      add_worst(object, "weight", verdict.weights.comparison, verdict.weights.step);
      add_worst(object, "output", verdict.outputs, -1);
      object.add("loss_tolerance", verdict.tolerance.loss);
      object.add("tensor_tolerance", verdict.tolerance.tensors.usual);
    }
    print_json("verify", object.add("passed", verdict.passed()), {});
    return;
  }
  std::cout << "pipeline against the serial interpreter of the same plan: "
            << (verdict.bitwise ? "the same bits" : "DIFFERENT BITS")
            << (verdict.forward_only ? " (outputs, losses)\n" : " (losses, gradients, weights)\n");
  if (!verdict.compared) {
    std::cout << "the schedule is asynchronous: it uses older weights than one process would, "
                 "so there is no other check\n"
              << (verdict.passed() ? "verify: passed\n" : "verify: FAILED\n");
    return;
  }
  std::cout << "pipeline against the unpartitioned model: ";
  if (verdict.compares_nothing()) std::cout << "NOT COMPARED\n";
  else
    std::cout << (verdict.by_tolerance ? "equal" : "NOT EQUAL") << " within the tolerance of "
              << ir::dtype_name(verdict.tolerance.computes_in) << ": " << rounded(verdict.tolerance.loss)
              << " of a loss, " << rounded(verdict.tolerance.tensors.usual) << " of a tensor"
              << looser_words(verdict.tolerance.tensors) << "\n";
  std::cout << "  largest relative differences: losses " << rounded(verdict.loss_difference)
            << (verdict.worst_step > 0 ? text(" at step ", verdict.worst_step) : "") << "\n";
  if (verdict.compares_nothing() && verdict.forward_only)
    std::cout << "  no output has an axis of the samples, and there is no loss: compile with --loss to compare one\n";
  else if (verdict.compares_nothing())
    std::cout << "  all steps overflow, so that no gradient was compared: take more steps, or a smaller --loss-scale\n";
  if (!verdict.same_skips) std::cout << "  the steps that make no update differ\n";
  if (verdict.forward_only) {
    print_worst("outputs", verdict.outputs, -1);
  } else {
    print_worst("gradients", verdict.gradients.comparison, verdict.gradients.step);
    print_worst("weights", verdict.weights.comparison, verdict.weights.step);
  }
  std::cout << (verdict.passed() ? "verify: passed\n" : "verify: FAILED\n");
}

}  // namespace

int run_verify(const Options& options) {
  catch_interrupts();
  const Result<Verdict> verdict = verify(options);
  if (!verdict) return report_problems(options, "verify", verdict.problems());
  print(options, *verdict);
  return verdict->passed() ? wire::kExitOk : wire::kExitCheckFailed;
}

}  // namespace graphpipe::driver
