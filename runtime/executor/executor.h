#pragma once
// Runs a device's program, one action after the other, in one thread. Sends and receives are posted when they are
// reached and never wait; a forward waits for its inputs and for the sends that still read its slot, a backward for its
// gradients, a step for its reduction. Messages make progress while it waits, between actions, and between the parts of
// the last backward of a stage with replicas.

#include <map>
#include <optional>

#include "runtime/collectives/gather.h"
#include "runtime/collectives/reduce.h"
#include "runtime/collectives/replica_gather.h"
#include "runtime/collectives/weight_exchange.h"
#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/check_update_order.h"
#include "runtime/executor/messages.h"
#include "runtime/executor/recorded_calls.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/stage_meter.h"
#include "runtime/executor/stage_state.h"
#include "runtime/executor/tracer.h"
#include "runtime/io/data.h"
#include "runtime/io/outputs.h"
#include "runtime/loss.h"
#include "runtime/step_samples.h"
#include "runtime/training/kept_statistics.h"
#include "runtime/training/overflow.h"
#include "runtime/training/step_guard.h"
#include "wire/run/launch.h"

namespace graphpipe::runtime {

class Pacer;
class ServedUpdates;

class Executor {
 public:
  enum class Purpose : uint8_t {
    kTrain,
    /// The program has forwards only (evaluation_program.h). The states do not change; the newest weights are used.
    kEvaluate,
  };

  /// `states` are those of resolved.instances, in order. All arguments must outlive it.
  Executor(const PlanTable& plan, const ResolvedProgram& program, Channels& channels, Data& data, const Device& device,
           std::vector<StageState>& states, uint64_t seed, const UpdateSettings& settings,
           Purpose purpose = Purpose::kTrain);

  /// From here on records when every action runs. The tracer must outlive the executor.
  void trace(Tracer& tracer) { tracer_ = &tracer; }
  /// From here on measures the time of stages. The meter must outlive the executor.
  void meter(StageMeter& meter) { meter_ = &meter; }
  /// From here on skips the steps that the guard rejects; without a guard a non-finite loss ends the run. The guard
  /// must outlive the executor. Throws RunError (kBadSchedule) if weights change before the step's gradients are known.
  void skip_anomalies(StepGuard& guard);
  /// From here on the loss is multiplied by this scale for its gradients, and updates that overflow are skipped; it
  /// must be the scale of the states, and outlive the executor. Throws RunError (kBadSchedule) as skip_anomalies does.
  void scale_loss(LossScale& scale);
  /// From here on keeps the model's outputs. `outputs` must outlive the executor.
  void keep_outputs(KeptOutputs& outputs) { outputs_ = &outputs; }
  /// From here on computes nothing: the pacer replaces the stages' functions and the updates, and decides how long each
  /// action takes. It must outlive the executor.
  void pace(Pacer& pacer) { pacer_ = &pacer; }
  /// From here on records the calls of stages, if the device can (recorded_calls.h) and weights stay where they are.
  void record_calls();
  wire::GraphUse graph_use() const { return recorded_ ? recorded_->use() : wire::GraphUse{}; }
  /// When replicas may sum gradients before the end of a stage's last backward; kAuto until then: where messages of
  /// their ring move while this rank computes. On one host it costs more than it hides: chunks leave the caches.
  void overlap_reductions(wire::Overlap overlap) { overlap_ = overlap; }
  /// From here on a parameter server makes the updates. Its messages must outlive the executor.
  void serve(ServedUpdates& served) { served_ = &served; }
  /// Runs the steps [first, last), as many as the program covers, and returns the outcome of each.
  std::vector<StepOutcome> run_steps(int64_t first, int64_t last);
  StepOutcome run_step(int64_t step) { return std::move(run_steps(step, step + 1).front()); }
  /// Waits until no send is in flight.
  void finish();
  /// Makes progress on reductions; for waits outside the executor.
  void meanwhile();
  Gather& gather() { return gather_; }
  /// The first non-finite value of the items in flight on this rank, with its stage: possibly the cause of another
  /// rank's loss. Absent if all tensors that are held are finite.
  std::optional<std::string> find_not_finite() const;

 private:
  /// Starts the reduction of an update while its last backward still runs.
  class EarlySums final : public GradientListener {
   public:
    explicit EarlySums(Executor& executor) : executor_(executor) {}
    void begin(Reduction& reduction);
    bool sums(const Reduction& reduction) const { return reduction_ == &reduction && reduction.is_early(); }
    void note_complete(std::span<const int32_t> params) override;

   private:
    Executor& executor_;
    Reduction* reduction_ = nullptr;
  };

  bool trains() const { return purpose_ == Purpose::kTrain; }
  const StageEntry& entry_of(const ResolvedAction& action) const { return *program_.instances[action.instance].entry; }
  void begin_steps(int64_t first, int64_t last);
  void run_action(const ResolvedAction& action);
  void run(const ResolvedAction& action);
  /// The training step that the action belongs to.
  int64_t step_of(const ResolvedAction& action) const { return first_step_ + steps_before(plan_, action.row.range); }
  /// For programs of one step.
  StepOutcome& outcome() { return outcomes_.front(); }
  void forward(const ResolvedAction& action, bool again);
  void backward(const ResolvedAction& action);
  void call(StageFunction function, const ResolvedAction& action, bool again);
  void send(const ResolvedAction& action);
  void concatenate(const ResolvedAction& action);
  void offload(const ResolvedAction& action);
  void reload(const ResolvedAction& action);
  void fill_inputs(const ResolvedAction& action);
  void drop_for_recompute(const ResolvedAction& action);
  void read_losses();
  void check_finite(double loss, const ResolvedAction& action);
  StepChecks checks() const { return {.guard = guard_ != nullptr, .loss_scale = loss_scale_ != nullptr}; }
  bool checks_step() const { return needs_norm() || guard_ != nullptr || loss_scale_ != nullptr; }
  void check_step();
  bool needs_norm() const;
  void find_norm();
  /// In a paced run: waits for as long as the action takes.
  void pause(const ResolvedAction& action);
  void reduce(const ResolvedAction& action);
  void step(const ResolvedAction& action);
  void note_end(const ResolvedAction& action);
  void note_ready();
  void note_done();
  ReplicaExchange* replicas_of(const ResolvedAction& action);
  GradientListener* listener_of(const ResolvedAction& action);
  Reduction& reduction_of(const ResolvedAction& action);
  void wait_for_reduction(const Reduction& reduction);
  void wait_for_weights(size_t instance);
  Slot& slot_of(const ResolvedAction& action) { return slots_[action.instance][static_cast<size_t>(action.row.slot)]; }

  const PlanTable& plan_;
  const ResolvedProgram& program_;
  Channels& channels_;
  Data& data_;
  const Device& device_;
  std::vector<StageState>& states_;
  uint64_t seed_;
  const UpdateSettings& settings_;
  Purpose purpose_;
  Gather gather_;
  std::vector<std::vector<Slot>> slots_;  // by instance, slot
  Messages messages_;
  // By instance, slot: tensors in the host's memory.
  std::map<std::pair<size_t, int32_t>, std::vector<size_t>> offloaded_;
  std::map<std::pair<size_t, int64_t>, Reduction> reductions_;  // by instance, update
  std::map<size_t, ReplicaGather> replicas_;                    // by instance, of stages that exchange sums
  std::map<size_t, WeightExchange> exchanges_;                  // by instance, of states that own parts of parameters
  wire::Overlap overlap_ = wire::Overlap::kAuto;
  EarlySums early_sums_{*this};
  int64_t first_step_ = 0;
  std::optional<LossScales> loss_scales_;  // where a stage of this device has the loss
  double factor_ = 1;
  bool checked_ = false;
  std::vector<StepOutcome> outcomes_;  // by step of the program
  struct Loss {
    const ResolvedAction* action = nullptr;
    std::unique_ptr<Download> value;
  };
  std::vector<Loss> unread_losses_;
  struct Traced {
    size_t event = 0;
    const ResolvedAction* action = nullptr;
  };
  Tracer* tracer_ = nullptr;
  StageMeter* meter_ = nullptr;
  StepGuard* guard_ = nullptr;
  LossScale* loss_scale_ = nullptr;
  KeptStatistics statistics_;  // if a step may be skipped
  OverflowWatch overflow_;     // if there is a loss scale
  double loss_factor_ = 1;     // of this step
  KeptOutputs* outputs_ = nullptr;
  Pacer* pacer_ = nullptr;
  ServedUpdates* served_ = nullptr;
  std::optional<RecordedCalls> recorded_;
  std::vector<Traced> under_way_;  // traced messages and reductions that are in flight
};

}  // namespace graphpipe::runtime
