// What a program does that is started as the serial interpreter.

#include <algorithm>
#include <optional>

#include "runtime/checkpoint/session.h"
#include "runtime/error.h"
#include "runtime/executor/check_copies.h"
#include "runtime/executor/check_weights.h"
#include "runtime/executor/link_programs.h"
#include "runtime/executor/trained_groups.h"
#include "runtime/io/folder.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/launch/run_main.h"
#include "runtime/main.h"
#include "runtime/reference/interpreter.h"
#include "runtime/reference/step_records.h"
#include "runtime/training/evaluation.h"
#include "runtime/training/loop.h"
#include "runtime/training/next_drain.h"
#include "runtime/training/overflow.h"
#include "runtime/training/progress_lines.h"
#include "runtime/training/watchers.h"
#include "support/check.h"
#include "wire/exit_codes.h"

namespace graphpipe::runtime {
namespace {

CheckpointSession open_checkpoints(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder,
                                   Interpreter& interpreter, const Device& device) {
  return CheckpointSession({.plan = plan,
                            .options = options,
                            .folder = folder,
                            .device = device,
                            .states = interpreter.all_states(),
                            .share = [](const std::string&, const std::string& value) { return value; }});
}

void train(Interpreter& interpreter, LossScale* loss_scale, CheckpointSession& checkpoints, const Device& device,
           const PlanTable& plan, Data& data, Data* eval_data, const wire::RunOptions& options,
           wire::RunResult& result) {
  ProgressLines lines(options, result);
  const Watchers watchers(options, true, checkpoints.earlier_losses());
  StepGuard guard(options.watch.max_loss_factor, checkpoints.earlier_losses());
  StepRecorder recorder(options.output.record_steps, interpreter, device);
  StepFollower follower(options.output.follow_steps, interpreter, loss_scale);
  const bool follows = !options.output.follow_steps.empty();
  LoopSetup loop{.observers = {&lines},
                 .run_steps =
                     [&](int64_t first, int64_t last) {
                       return follows ? std::vector<StepOutcome>{follower.run_step(first)}
                                      : interpreter.run_steps(first, last);
                     },
                 .next_drain = [&](int64_t step) { return next_drain(plan, options, step); },
                 .has_data = [&](int64_t step) { return data.has_step(step); }};
  if (!options.output.record_steps.empty()) loop.observers.push_back(&recorder);
  watchers.add_to(loop.observers);
  if (options.watch.skips()) interpreter.skip_anomalies(guard);
  KeptOutputs outputs;
  const bool keeps_outputs = !options.output.save_eval_outputs.empty();
  if (keeps_outputs) interpreter.keep_evaluated_outputs(outputs);
  const std::unique_ptr<Evaluation> evaluation =
      evaluation_of(plan, eval_data, options, result,
                    {.run_batch = [&](int64_t batch) { return interpreter.evaluate(batch, *eval_data); },
                     .say = [&](std::string_view line) { lines.say(line); },
                     .outputs = keeps_outputs ? &outputs : nullptr});
  if (evaluation) loop.observers.push_back(evaluation.get());
  if (StepObserver* checkpointer = checkpoints.observe(nullptr, nullptr)) loop.observers.push_back(checkpointer);
  result.first_step = checkpoints.first_step() + 1;
  const int64_t done = run_steps(loop, checkpoints.first_step(), options.data.steps);
  result.complete = done == options.data.steps;
  data.check_end(done);
}

void compare_copies(const PlanTable& plan, const Interpreter& interpreter, const Device& device) {
  std::vector<std::vector<std::byte>> digests;
  for (const auto& [key, state] : interpreter.states()) digests.push_back(digest_copies(plan, state, device));
  check_copies(digests);
}

Diagnostics write_results(const PlanTable& plan, const wire::RunOptions& options, const Interpreter& interpreter,
                          const Device& device, const KeptOutputs& outputs) {
  if (!options.output.save.empty() || !options.output.save_gradients.empty()) compare_copies(plan, interpreter, device);
  write_tensors(options.output.save, interpreter, device, named_parameters);
  write_tensors(options.output.save_average, interpreter, device, named_averages);
  write_tensors(options.output.save_gradients, interpreter, device, named_gradients);
  if (!options.output.save_outputs.empty()) {
    std::vector<NamedTensor> parts = outputs.parts();
    std::ranges::sort(parts, {}, &NamedTensor::name);
    write_outputs(options.output.save_outputs, parts);
  }
  for (const auto& [key, state] : interpreter.states()) {
    if (state.replica != 0) continue;  // the others have the same weights
    std::optional<std::string> found;
    if (!options.output.save.empty()) found = not_finite_tensor(named_parameters(state, device));
    if (!found && !options.output.save_average.empty()) found = not_finite_tensor(named_averages(state, device));
    if (found) return {weights_problem("the saved weights are not finite", *found)};
  }
  return {};
}

struct Ending {
  bool complete = true;  // all steps were run, or none was asked for
  bool has_launcher = false;
  Diagnostics found;
};

Ending run(std::span<const DeviceProgram> programs, const wire::RunOptions& options) {
  const PlanTable& plan = *programs.front().plan;
  if (!options.output.trace.empty())
    fail(Code::kUsage, "the serial interpreter runs one action after the other and has no trace",
         "trace the device programs");
  if (!options.watch.metrics.empty())
    fail(Code::kUsage, "the serial interpreter is one thread for all stages and has no metrics of them",
         "take the metrics of the device programs");
  if (options.optimizer.staleness)
    fail(Code::kUsage, "the serial interpreter is one process, and a parameter server a process of its own",
         "leave --staleness out");
  const std::string folder = find_folder(options.launch.folder);
  check_outputs(plan, options, folder);
  check_manifest(folder, plan.plan_digest, FolderCheck::kAllFiles);
  check_data(options, folder);
  take_measured_kernels(read_measured_kernels(folder));
  const Safetensors weights = Safetensors::of_folder(folder);
  const std::unique_ptr<Data> data = open_data(plan, options, folder);
  const std::unique_ptr<Data> eval_data = open_eval_data(plan, options, folder);
  const std::unique_ptr<Device> device = open_device(options.launch.device, 0);
  std::optional<Safetensors> own;
  if (!options.data.weights.empty()) own.emplace(options.data.weights);
  const UpdateSettings updates = update_settings(plan.optimizer, options.optimizer);
  Interpreter interpreter(programs, *data, *device, {weights, own ? &*own : nullptr}, updates, seed_of(plan, options));
  std::optional<LossScale> loss_scale = first_loss_scale(plan, options.optimizer);
  std::vector<std::string> trained;
  for (const auto& [place, state] : interpreter.states())
    trained.push_back(trained_groups(options.optimizer, {&state, 1}));
  check_trained_groups(options.optimizer, trained);
  if (loss_scale) interpreter.scale_loss(*loss_scale);
  KeptOutputs outputs;
  if (!options.output.save_outputs.empty()) interpreter.keep_outputs(outputs);
  device->reset_peak();
  wire::RunResult result{.plan = plan.plan_digest, .transport = "serial", .devices = plan.device_count};
  CheckpointSession checkpoints = open_checkpoints(plan, options, folder, interpreter, *device);
  for (StageState* state : interpreter.all_states()) begin_optimizer(*state);
  train(interpreter, loss_scale ? &*loss_scale : nullptr, checkpoints, *device, plan, *data, eval_data.get(), options,
        result);
  result.peak_bytes = {device->peak_bytes()};
  Ending ending{.complete = result.complete, .has_launcher = options.launch.parent != 0, .found = {}};
  if (result.complete) ending.found = write_results(plan, options, interpreter, *device, outputs);
  if (const auto problem = evaluation_problem(result)) ending.found.push_back(*problem);
  if (const auto problem = overflow_problem(result); problem && !options.watch.skips())
    ending.found.push_back(*problem);
  result.problems = ending.found;
  print_result(options, result);
  return ending;
}

}  // namespace

int run_serial(const LinkedProgram* first, int count, int argc, char** argv) {
  GP_CHECK(count >= 1);
  const std::vector<DeviceProgram> programs = link_programs({first, static_cast<size_t>(count)});
  Ending ending;
  const int code = run_main(
      *programs.front().plan, argc, argv, [&](const wire::RunOptions& options) { ending = run(programs, options); },
      [] { return std::string("in the serial interpreter"); });
  end_process(code == wire::kExitOk ? code_of_end(ending.complete, ending.found, ending.has_launcher) : code);
}

}  // namespace graphpipe::runtime
