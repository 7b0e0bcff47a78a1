#pragma once
// The serial interpreter (docs/semantics.md, section 2): runs all programs of a plan in one process, one action after
// the other. Item tensors and messages lie in plain maps; there are no rings, channels or posted receives, and no code
// of the executor. A distributed run must produce the same bits.

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/device/device.h"
#include "runtime/executor/evaluation_program.h"
#include "runtime/executor/stage_state.h"
#include "runtime/io/data.h"
#include "runtime/io/outputs.h"
#include "runtime/loss.h"
#include "runtime/replica_exchange.h"
#include "runtime/step_samples.h"
#include "runtime/training/kept_statistics.h"
#include "runtime/training/overflow.h"
#include "runtime/training/step_guard.h"

namespace graphpipe::runtime {

class Interpreter {
 public:
  /// All arguments must outlive it.
  Interpreter(std::span<const DeviceProgram> programs, Data& data, const Device& device, const WeightFiles& weights,
              const UpdateSettings& settings, uint64_t seed);

  /// From here on keeps the model's outputs, of steps or evaluations. They must outlive the interpreter.
  void keep_outputs(KeptOutputs& of_steps) { outputs_ = &of_steps; }
  void keep_evaluated_outputs(KeptOutputs& of_evaluations) { evaluated_outputs_ = &of_evaluations; }
  /// From here on skips the steps that the guard rejects, like Executor::skip_anomalies().
  void skip_anomalies(StepGuard& guard) { guard_ = &guard; }
  /// From here on scales the loss, like Executor::scale_loss(). The scale must outlive the interpreter.
  void scale_loss(LossScale& scale);
  /// Runs the steps [first, last), at most as many as the programs cover, and returns the outcome of each. Throws
  /// RunError (kBadSchedule) if the programs deadlock.
  std::vector<StepOutcome> run_steps(int64_t first, int64_t last);
  StepOutcome run_step(int64_t step) { return std::move(run_steps(step, step + 1).front()); }
  /// Runs the forwards of a batch of evaluation data with the current weights; nothing of the training changes. Throws
  /// as run_steps does.
  StepOutcome evaluate(int64_t batch, Data& data);
  /// Continues with these weights, and its own optimizer state.
  void take_weights(const Safetensors& file);
  /// The same states, mutable, to replace what they began with.
  std::vector<StageState*> all_states();
  /// All replicas of all stages, ascending.
  const std::map<std::pair<int32_t, int32_t>, StageState>& states() const { return states_; }

 private:
  using StageReplica = std::pair<int32_t, int32_t>;
  using UpdateKey = std::pair<int32_t, int64_t>;                   // stage, first sample of the update
  using ItemKey = std::tuple<int32_t, int32_t, int64_t>;           // stage, replica, first sample
  using MessageKey = std::tuple<bool, int32_t, int32_t, int32_t>;  // backward, edge, receiving replica, part
  struct Item {
    wire::SampleRange range;
    std::vector<at::Tensor> tensors;
  };
  struct StoredMessage {
    wire::SampleRange range;
    at::Tensor rows;
  };

  bool try_run(const wire::ActionRow& row);
  bool try_compute(const wire::ActionRow& row);
  bool has_arrived(const wire::ActionRow& row) const;
  bool try_together(const wire::ActionRow& row);
  void compute(const wire::ActionRow& row, ReplicaExchange* replicas);
  bool try_step(const wire::ActionRow& row);
  void forward(const wire::ActionRow& row, Item& item, ReplicaExchange* replicas);
  void check_finite(double loss, const wire::ActionRow& row, const Item& item);
  void call(StageFunction function, const wire::ActionRow& row, Item& item, bool again, ReplicaExchange* replicas);
  void send(const wire::ActionRow& row);
  bool has_messages(const wire::ActionRow& row, const BoundaryRow& boundary, bool backward) const;
  void take_messages(const wire::ActionRow& row, const BoundaryRow& boundary, bool backward, Item& item);
  Item& item_of(const wire::ActionRow& row);
  UpdateKey update_of(const wire::ActionRow& row) const;
  bool compute_is_over(UpdateKey update) const;
  void reduce(UpdateKey update);
  const std::vector<at::Tensor>& replica_sums(UpdateKey update);
  KeptOutputs* outputs_now() const { return evaluates_ ? evaluated_outputs_ : outputs_; }
  bool checks_step() const { return needs_norm() || guard_ != nullptr || loss_scale_ != nullptr; }
  void check_step();
  bool needs_norm() const;
  void find_norm();
  void find_updates();
  void begin_steps(int64_t first, int64_t last);
  void run_programs();
  /// The training step that the action belongs to.
  int64_t step_of(const wire::ActionRow& row) const { return first_step_ + steps_before(plan_, row.range); }
  /// For programs of one step.
  StepOutcome& outcome() { return outcomes_.front(); }
  /// The plan's programs, limited to their first samples.
  std::span<const DeviceProgram> programs_of(int64_t samples);
  /// The programs of all devices, for evaluation.
  struct Forwards {
    std::deque<EvaluationProgram> parts;
    std::vector<DeviceProgram> programs;
  };
  const Forwards& forwards_of(int64_t samples);
  void count_work();

  std::span<const DeviceProgram> programs_, running_;  // of the plan; of the step
  struct Shorter {
    std::vector<std::vector<wire::ActionRow>> actions;  // by device
    std::vector<DeviceProgram> programs;
  };
  std::map<int64_t, Shorter> shorter_;    // by samples
  std::map<int64_t, Forwards> forwards_;  // by samples of the batch
  bool evaluates_ = false;
  Data* source_ = nullptr;
  const PlanTable& plan_;
  Data& data_;
  const Device& device_;
  uint64_t seed_;
  const UpdateSettings& settings_;
  std::map<StageReplica, StageState> states_;
  std::map<ItemKey, Item> items_;
  std::map<MessageKey, std::vector<StoredMessage>> messages_;
  std::map<int32_t, std::map<int64_t, int64_t>> updates_;  // by stage, last sample: first sample
  /// Passes of replicas that exchange sums, which all programs must reach: by stage, pass and first sample of the
  /// micro-batch the replicas' actions.
  using MeetingKey = std::tuple<int32_t, wire::ActionOp, int64_t>;
  std::map<MeetingKey, std::map<int32_t, wire::ActionRow>> meetings_;
  std::map<UpdateKey, int64_t> work_left_;             // compute actions not yet run in this step
  std::map<UpdateKey, std::vector<at::Tensor>> sums_;  // gradients summed over the stage's replicas
  std::set<UpdateKey> reduced_;
  int64_t first_step_ = 0;
  std::optional<LossScales> loss_scales_;
  double factor_ = 1;
  bool checked_ = false;
  std::vector<StepOutcome> outcomes_;  // by step of the programs
  KeptOutputs *outputs_ = nullptr, *evaluated_outputs_ = nullptr;
  StepGuard* guard_ = nullptr;
  LossScale* loss_scale_ = nullptr;
  KeptStatistics statistics_;  // if a step may be skipped
  OverflowWatch overflow_;     // if there is a loss scale
  double loss_factor_ = 1;     // of this step
};

}  // namespace graphpipe::runtime
