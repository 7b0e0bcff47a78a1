// The main function of the serial interpreter.

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/error.h"
#include "runtime/io/folder.h"
#include "runtime/launch/run_main.h"
#include "runtime/reference/interpreter.h"
#include "support/check.h"
#include "wire/manifest.h"

namespace graphpipe::runtime {
namespace {

using NamesOf = std::vector<NamedTensor> (*)(const StageState&, const Device&);

// Of all stages, each name once.
void write_tensors(const std::string& path, const Interpreter& interpreter, const Device& device, NamesOf names_of) {
  if (path.empty()) return;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [key, state] : interpreter.states()) {
    if (state.replica != 0) continue;
    for (const NamedTensor& named : names_of(state, device)) tensors.emplace(named.name, named.tensor);
  }
  std::vector<NamedTensor> sorted;
  for (const auto& [name, tensor] : tensors) sorted.push_back({name, tensor});
  write_safetensors(path, sorted);
}

void record_step(const std::string& folder, int64_t step, const Interpreter& interpreter, const Device& device) {
  if (folder.empty()) return;
  write_tensors(wire::step_file(folder, step, "weights"), interpreter, device, named_parameters);
  if (step == 0) return;
  write_tensors(wire::step_file(folder, step, "gradients"), interpreter, device, named_gradients);
  write_tensors(wire::step_file(folder, step, "second_moments"), interpreter, device, named_second_moments);
}

void run(std::span<const DeviceProgram> programs, const wire::RunOptions& options) {
  using Clock = std::chrono::steady_clock;
  const PlanTable& plan = *programs.front().plan;
  if (!options.output.trace.empty())
    fail(Code::kUsage, "the serial interpreter runs one action after the other and has no trace",
         "trace the device programs");
  const std::string folder = find_folder(options.launch.folder);
  check_outputs(options, folder);
  check_manifest(folder, plan.plan_digest, FolderCheck::kAllFiles);
  check_data(options, folder);
  const Safetensors weights(folder + "/" + std::string(wire::kWeightsFile));
  const std::unique_ptr<Data> data = open_data(plan, options);
  const std::unique_ptr<Device> device = open_device(options.launch.device, 0);
  std::optional<Safetensors> own;
  if (!options.data.weights.empty()) own.emplace(options.data.weights);
  Interpreter interpreter(programs, *data, *device, {weights, own ? &*own : nullptr},
                          optimizer_numbers(plan.optimizer, options), seed_of(plan, options), options.optimizer.clip_norm);
  KeptOutputs outputs;
  if (!options.output.save_outputs.empty()) interpreter.keep_outputs(outputs);
  device->reset_peak();
  wire::RunResult result{.plan = plan.plan_digest, .transport = "serial", .devices = plan.device_count};
  record_step(options.output.record_steps, 0, interpreter, *device);
  for (int64_t step = 0; step < options.data.steps; ++step) {
    if (!options.output.follow_steps.empty())
      interpreter.take_weights(Safetensors(wire::step_file(options.output.follow_steps, step, "weights")));
    const Clock::time_point start = Clock::now();
    const StepOutcome outcome = interpreter.run_step(step);
    result.step_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (outcome.gradient_norm >= 0) result.gradient_norms.push_back(outcome.gradient_norm);
    note_step(options, outcome.losses, result);
    record_step(options.output.record_steps, step + 1, interpreter, *device);
  }
  result.peak_bytes = {device->peak_bytes()};
  write_tensors(options.output.save, interpreter, *device, named_parameters);
  write_tensors(options.output.save_gradients, interpreter, *device, named_gradients);
  if (!options.output.save_outputs.empty()) {
    std::vector<NamedTensor> parts = outputs.parts();
    std::ranges::sort(parts, {}, &NamedTensor::name);
    write_safetensors(options.output.save_outputs, join_outputs(parts));
  }
  print_result(options, result);
}

}  // namespace

int run_serial(std::span<const DeviceProgram> programs, int argc, char** argv) {
  GP_CHECK(!programs.empty());
  return run_main(
      *programs.front().plan, argc, argv, [&](const wire::RunOptions& options) { run(programs, options); },
      [] { return std::string("in the serial interpreter"); });
}

}  // namespace graphpipe::runtime
