// The unpartitioned model that `verify` compares with follows the loss scales of the plan's records.

#include "runtime/reference/step_records.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "runtime/optimizers/update_settings.h"
#include "tests/runtime/two_stage_plan.h"
#include "wire/run_options.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

constexpr int64_t kRecordedSteps = 3;

/// A serial run of a plan at a loss scale.
struct ScaledRun {
  ScaledRun(const PlanShape& shape, const std::string& data_folder_path, double start)
      : plan(shape),
        weights(data_folder_path + "/weights.safetensors"),
        data(synthetic_data(shape.batch, 5)),
        device(open_device("cpu", 0)),
        settings(update_settings("sgd", {.learning_rate = 0.1})),
        interpreter(plan.programs(), *data, *device, {weights, nullptr}, settings, 1),
        scale(start, 1000) {
    interpreter.scale_loss(scale);
  }
  at::Tensor gradient() {
    StageState& first = *interpreter.all_states().front();
    return gradients_of(first, 0)[first.trainable.front()].clone();
  }

  TwoStagePlan plan;
  Safetensors weights;
  std::unique_ptr<Data> data;
  std::unique_ptr<Device> device;
  UpdateSettings settings;
  Interpreter interpreter;
  LossScale scale;
};

/// Replaces what was recorded of a step's scale, steps counted from 1.
void record_scale(const std::string& folder, int64_t step, double scale, bool overflow) {
  at::Tensor pair = at::empty({2}, at::TensorOptions().dtype(at::kDouble));
  pair.mutable_data_ptr<double>()[0] = scale;
  pair.mutable_data_ptr<double>()[1] = overflow ? 1 : 0;
  write_safetensors(graphpipe::wire::step_file(folder, step, "loss_scale"), {{"loss_scale", pair}});
}

}  // namespace

TEST_CASE("a follower runs at the recorded loss scales, or below where it would overflow alone") {
  const c10::InferenceMode no_autograd;
  const std::string folder = make_folder(false, 8), steps = folder + "/steps";
  std::filesystem::create_directories(steps);
  ScaledRun recorded({.micro_batch = {2, 2}}, folder, 1024);
  StepRecorder recorder(steps, recorded.interpreter, *recorded.device);
  std::vector<at::Tensor> gradients;
  for (int64_t step = 0; step < kRecordedSteps; ++step) {
    recorder.before_step(step);
    const StepOutcome outcome = recorded.interpreter.run_step(step);
    recorder.after_step({.step = step, .loss_scale = outcome.loss_scale, .overflow = outcome.overflow});
    gradients.push_back(recorded.gradient());
  }
  // The whole batch at once, and a start of its own that nothing may come from.
  ScaledRun whole({.micro_batch = {8, 8}}, folder, 1);
  StepFollower follower(steps, whole.interpreter, &whole.scale);
  const auto follows_at = [&](int64_t step, double scale) {
    const StepOutcome outcome = follower.run_step(step);
    CHECK(outcome.loss_scale == scale);
    CHECK_FALSE(outcome.overflow);
    CHECK(outcome.skipped.empty());
    CHECK(at::allclose(whole.gradient(), gradients[static_cast<size_t>(step)], 1e-4, 1e-7));
  };
  SUBCASE("as recorded") {
    for (int64_t step = 0; step < kRecordedSteps; ++step) follows_at(step, 1024);
  }
  SUBCASE("a scale at which only the follower overflows") {
    record_scale(steps, 1, std::exp2(131), false);
    const StepOutcome outcome = follower.run_step(0);
    CHECK_FALSE(outcome.overflow);
    CHECK(outcome.skipped.empty());
    CHECK(outcome.loss_scale < std::exp2(131));
    CHECK(at::allclose(whole.gradient(), gradients.front(), 1e-4, 1e-7));
    follows_at(1, 1024);
  }
  SUBCASE("a step that overflowed is left out") {
    record_scale(steps, 1, std::exp2(127), true);
    const StepOutcome outcome = follower.run_step(0);
    CHECK(outcome.overflow);
    CHECK_FALSE(outcome.skipped.empty());
    follows_at(1, 1024);
  }
  SUBCASE("an overflow that nothing explains shows") {
    record_scale(steps, 1, 1024, true);
    const StepOutcome outcome = follower.run_step(0);
    CHECK(outcome.loss_scale == 16 * 1024);
    CHECK_FALSE(outcome.overflow);
    CHECK(outcome.skipped.empty());
  }
  std::filesystem::remove_all(folder);
}
