// Measures the operators, inside the functions that run them, and the overhead of a step.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/executor/executor.h"
#include "runtime/executor/update_weights.h"
#include "runtime/io/folder.h"
#include "runtime/launch/run_main.h"
#include "runtime/profiling/marks.h"
#include "runtime/profiling/measure.h"
#include "runtime/profiling/measure_rates.h"
#include "support/median.h"

namespace graphpipe::runtime {
namespace {

constexpr int64_t kModelItems = 4;  // per step, so that most weight gradients are added to a sum
constexpr int kModelWarmUps = 5;
constexpr int kFewestSteps = 15;
constexpr double kSecondsPerSize = 2;
constexpr int kMarks = 10000;  // to measure what one costs

/// A stage of one device that runs items of `samples` samples, one after the other.
struct Trial {
  Trial(const DeviceProgram& program, int64_t samples, int64_t items) : plan(*program.plan) {
    const StageEntry& entry = *program.stages.front();
    const bool has_backward = entry.input_gradient != nullptr || entry.weight_gradient != nullptr;
    row.micro_batch = samples;
    plan.batch = samples * items;
    plan.batches = 1;
    plan.device_count = 1;
    plan.loss_updates = {};
    plan.stages = {&row, 1};
    for (int64_t i = 0; i < items; ++i) {
      wire::ActionRow action{
          .op = wire::ActionOp::kForward, .stage = entry.stage, .range = {i * samples, (i + 1) * samples}, .slot = 0};
      actions.push_back(action);
      action.op = wire::ActionOp::kBackward;
      if (has_backward) actions.push_back(action);
    }
    resolved = resolve({.plan = &plan, .actions = actions, .stages = program.stages});
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  PlanTable plan;
  StageRow row;
  std::vector<wire::ActionRow> actions;
  ResolvedProgram resolved;
};

/// A mark in a recording keeps the kernels on its two sides apart, which overlap without it: what all operators of a
/// step take without marks, `step_seconds`, is less than the sum of what was marked.
void scale_to(double step_seconds, double items, std::vector<double>& of_marks) {
  const double marked = items * std::accumulate(of_marks.begin(), of_marks.end(), 0.0);
  if (step_seconds <= 0 || step_seconds >= marked) return;
  for (double& seconds : of_marks) seconds *= step_seconds / marked;
}

/// Seconds of a step outside its operators, by its number of actions.
struct Rest {
  double actions = 0, seconds = 0;
};

class ModelMeter {
 public:
  ModelMeter(const DeviceProgram& program, std::span<const MarkRow> marks, const Device& device,
             const wire::RunOptions& options)
      : program_(program),
        marks_(marks),
        device_(device),
        clock_(device.open_clock()),
        options_(options),
        data_(open_data(*program.plan, options, find_folder(options.launch.folder))),
        weights_(Safetensors::of_folder(find_folder(options.launch.folder))) {
    wire::OptimizerOptions still = options.optimizer;
    still.learning_rate = 0;  // the same work, but the weights do not change
    settings_ = update_settings(program.plan->optimizer, still);
    states_.push_back(load_stage(*program.stages.front(), 0, {weights_}, settings_, device_));
    // Updates are measured separately, with the gradients that these steps have made.
    states_.back().keeps_gradients = true;
    stopwatch.nanoseconds.assign(std::max<size_t>(marks.size(), 1), 0);
    stopwatch.clock = clock_.get();
  }
  ~ModelMeter() { stopwatch.clock = nullptr; }
  ModelMeter(const ModelMeter&) = delete;
  ModelMeter& operator=(const ModelMeter&) = delete;

  void run(int64_t samples, ModelMeasurement& result);
  void finish(ModelMeasurement& result) const;

 private:
  /// Of steps whose calls are all recorded, or of steps without recordings.
  struct Steps {
    std::vector<std::vector<double>> of_mark;
    std::vector<double> rests;
    double mark_seconds = 0;
  };
  struct Trainer {
    Trainer(ModelMeter& meter, const Trial& trial)
        : channels(trial.plan, 0, trial.resolved.channels, nullptr, stall_seconds(trial.plan, meter.options_),
                   meter.device_.copies()),
          executor(trial.plan, trial.resolved, channels, *meter.data_, meter.device_, meter.states_,
                   seed_of(*meter.program_.plan, meter.options_), meter.settings_) {}
    Channels channels;
    Executor executor;
  };
  static void make_marks() {
    begin_marks();
    for (int i = 0; i < kMarks; ++i) mark(0);
  }
  static double seconds_of_a_called_mark();
  std::optional<double> seconds_of_a_recorded_mark();
  void forget_marks();
  std::optional<Steps> measure_steps(const Trial& trial, int64_t items, bool records);
  double seconds_of_unmarked_step(const Trial& trial);
  double update(const Trial& trial);
  void update_seconds(ModelMeasurement& result) const;

  const DeviceProgram& program_;
  std::span<const MarkRow> marks_;
  const Device& device_;
  std::unique_ptr<DeviceClock> clock_;
  const wire::RunOptions& options_;
  std::unique_ptr<Data> data_;
  Safetensors weights_;
  UpdateSettings settings_;
  std::vector<StageState> states_;
  std::vector<Rest> rests_;
  std::vector<double> updates_;
};

double ModelMeter::seconds_of_a_called_mark() { return seconds_of_a_mark(kMarks, make_marks); }

// None if the device cannot record them.
std::optional<double> ModelMeter::seconds_of_a_recorded_mark() {
  const std::unique_ptr<Recorder> recorder = device_.open_recorder();
  const std::unique_ptr<Recording> recording = recorder == nullptr ? nullptr : recorder->record(make_marks);
  if (recording == nullptr) {
    forget_marks();
    return std::nullopt;
  }
  recording->run();  // not measured
  device_.finish();
  return seconds_of_a_mark(kMarks, [&] { recording->run(); });
}

// Those of a recording that failed are never reached.
void ModelMeter::forget_marks() {
  clock_ = device_.open_clock();
  stopwatch.clock = clock_.get();
  stopwatch.points.clear();
}

// With `records` none if a call cannot be recorded.
std::optional<ModelMeter::Steps> ModelMeter::measure_steps(const Trial& trial, int64_t items, bool records) {
  const std::optional<double> mark_seconds = records ? seconds_of_a_recorded_mark() : seconds_of_a_called_mark();
  if (!mark_seconds) return std::nullopt;
  Steps result{.of_mark = std::vector<std::vector<double>>(marks_.size()), .rests = {}, .mark_seconds = *mark_seconds};
  Trainer trainer(*this, trial);
  Executor& executor = trainer.executor;
  if (records) executor.record_calls();
  const Clock::time_point begin = Clock::now();
  for (int64_t step = 0; step < kModelWarmUps + std::max<int64_t>(options_.data.steps, kFewestSteps); ++step) {
    if (step >= kModelWarmUps + kFewestSteps && seconds_since(begin) > kSecondsPerSize) break;
    clear_marks();
    const Clock::time_point start = Clock::now();
    executor.run_step(step);
    device_.finish();
    double rest = seconds_since(start);
    const bool recorded = records && step > 0;
    if (recorded && executor.graph_use().graphs < executor.graph_use().calls) {
      forget_marks();
      return std::nullopt;
    }
    finish_marks(/*keep=*/recorded);
    const double update_seconds = update(trial);
    if (step >= kModelWarmUps) updates_.push_back(update_seconds);
    for (size_t i = 0; i < marks_.size(); ++i) {
      const double seconds = 1e-9 * static_cast<double>(stopwatch.nanoseconds[i]);
      rest -= seconds;
      if (step >= kModelWarmUps) result.of_mark[i].push_back(seconds / static_cast<double>(items));
    }
    if (step >= kModelWarmUps) result.rests.push_back(rest);
  }
  finish_marks(false);
  clear_marks();
  return result;
}

// Returns the seconds of the optimizer's step.
double ModelMeter::update(const Trial& trial) {
  complete_gradients(trial.plan, states_.front(), gradients_of(states_.front(), 0));
  const Clock::time_point begin = Clock::now();
  states_.front().prepared.clear();
  step_weights(states_.front(), 0, {}, false);
  device_.finish();
  return seconds_since(begin);
}

// Of steps whose calls are all recorded.
double ModelMeter::seconds_of_unmarked_step(const Trial& trial) {
  stopwatch.is_off = true;
  Trainer trainer(*this, trial);
  trainer.executor.record_calls();
  std::vector<double> seconds;
  for (int64_t step = 0; step < kModelWarmUps + kFewestSteps; ++step) {
    const Clock::time_point start = Clock::now();
    trainer.executor.run_step(step);
    device_.finish();
    if (step >= kModelWarmUps) seconds.push_back(seconds_since(start));
    update(trial);
  }
  stopwatch.is_off = false;
  return median(std::move(seconds));
}

void ModelMeter::run(int64_t samples, ModelMeasurement& result) {
  const int64_t items = std::clamp<int64_t>(program_.plan->batch / samples, 1, kModelItems);
  const Trial trial(program_, samples, items);
  std::optional<Steps> steps;  // as a run goes by default
  if (!device_.is_host() && !options_.launch.no_graphs) steps = measure_steps(trial, items, /*records=*/true);
  std::optional<double> unmarked;
  if (steps) unmarked = seconds_of_unmarked_step(trial);
  else steps = measure_steps(trial, items, /*records=*/false);
  const double rest = median(std::move(steps->rests));
  std::vector<double> of_marks;
  for (size_t i = 0; i < marks_.size(); ++i)
    of_marks.push_back(std::max(0.0, median(std::move(steps->of_mark[i])) - marks_[i].passes * steps->mark_seconds));
  if (unmarked) scale_to(*unmarked - rest, static_cast<double>(items), of_marks);
  result.marks.push_back({.samples = samples, .seconds = std::move(of_marks)});
  rests_.push_back({static_cast<double>(trial.actions.size()), rest});
}

void ModelMeter::finish(ModelMeasurement& result) const {
  // Least squares of rest = step + actions * action.
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Rest& rest : rests_) {
    n += 1;
    x += rest.actions;
    y += rest.seconds;
    xx += rest.actions * rest.actions;
    xy += rest.actions * rest.seconds;
  }
  const double spread = n * xx - x * x;
  const double slope = spread > 0 ? (n * xy - x * y) / spread : y / x;
  result.action = std::clamp(slope, 0.0, y / x);
  result.step = std::max(0.0, (y - result.action * x) / n);
  update_seconds(result);
}

/// A large tensor gives the cost per byte; the rest of the time of the model's tensors gives the cost per tensor.
void ModelMeter::update_seconds(ModelMeasurement& result) const {
  const auto seconds_of_update = [&](int64_t rows, int64_t columns) {
    const ParamRow parameter;
    const StageEntry entry{.params = {&parameter, 1}};
    StageState one{.entry = &entry,
                   .optimizer = Optimizer(program_.plan->optimizer, {settings_.terms_of("", 1, false)})};
    one.trainable = {0};
    one.weights = {device_.upload(at::zeros({rows, columns}))};
    one.gradients[0] = {device_.upload(at::zeros({rows, columns}))};
    return seconds_of([&] { step_weights(one, 0, {}, false); }, [&] { device_.finish(); });
  };
  const int64_t large = device_.is_host() ? kBeyondCachesOfCpus : kBeyondCachesOfGpus;
  result.update_byte = measure_update(seconds_of_update, large).byte;
  const StageState& state = states_.front();
  if (state.trainable.empty()) return;
  double bytes = 0;
  for (size_t index : state.trainable) bytes += static_cast<double>(state.weights[index].nbytes());
  const double beside = median(updates_) - bytes * result.update_byte;
  result.update_tensor = std::max(0.0, beside / static_cast<double>(state.trainable.size()));
}

}  // namespace

ModelMeasurement measure_model(const DeviceProgram& program, std::span<const MarkRow> marks, const Device& device,
                               const wire::RunOptions& options, const std::function<void()>& meet) {
  ModelMeter meter(program, marks, device, options);
  ModelMeasurement result;
  const int64_t batch = program.plan->batch;
  for (int64_t samples = 1; samples < batch; samples *= 2) {
    meet();
    meter.run(samples, result);
  }
  meet();
  meter.run(batch, result);
  meet();
  meter.finish(result);
  return result;
}

}  // namespace graphpipe::runtime
