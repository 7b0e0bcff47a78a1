#pragma once
// The loss on data that are not trained on, and the model's outputs for them: forwards only, by the training's own
// stages, with their current weights. Dropout drops nothing and BatchNorm uses its running statistics, which do not
// change: a training gives the same bits with and without it.

#include <functional>
#include <memory>
#include <optional>

#include "runtime/collectives/gather.h"
#include "runtime/io/data.h"
#include "runtime/io/outputs.h"
#include "runtime/loss.h"
#include "runtime/program.h"
#include "runtime/training/step_observer.h"
#include "wire/result_lines.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

struct EvaluationSetup {
  const PlanTable* plan = nullptr;
  /// Number of batches of the data; the last one may have fewer samples.
  int64_t batches = 0;
  /// Null if there is no other rank.
  Gather* gather = nullptr;
  int32_t rank = 0;
  /// Waits until `ready`, however long it takes, while the other ranks know that this one is working. May be absent if
  /// there is no other rank.
  std::function<void(const std::function<bool()>& ready)> wait;
  /// Called before and after: waits until nothing of the training, or of the evaluation, is in flight on this rank; may
  /// be absent.
  std::function<void()> begin, end;
  /// Runs the forwards of a batch.
  std::function<StepOutcome(int64_t batch)> run_batch;
  /// Prints a line of its own; rank 0's.
  std::function<void(std::string_view line)> say;
  /// Collects the outputs of all forwards of this rank. Null: nobody needs them.
  KeptOutputs* outputs = nullptr;
};

/// Evaluates every few steps and after the last, and adds losses and steps to the result of rank 0. The loss is the
/// mean over all counted positions in all batches, or a sum if the loss of the plan is one. Outputs go into a file,
/// replacing those of the previous evaluation. All arguments must outlive it.
class Evaluation : public StepObserver {
 public:
  Evaluation(const wire::RunOptions& options, wire::RunResult& result, EvaluationSetup setup)
      : options_(options), result_(result), setup_(std::move(setup)) {}

  Request after_step(const StepFacts& facts) override;
  void at_end() override;

 private:
  void evaluate();
  std::vector<LossShare> run_batches() const;
  void write_outputs() const;
  double loss_of(const std::vector<std::vector<LossShare>>& of_ranks);

  const wire::RunOptions& options_;
  wire::RunResult& result_;
  EvaluationSetup setup_;
  int64_t trained_ = 0, evaluated_ = 0;  // steps
};

/// The evaluation that the options ask for; null if there are no data for it. Fills in the fields of `setup` that come
/// from the plan and the data.
std::unique_ptr<Evaluation> evaluation_of(const PlanTable& plan, const Data* data, const wire::RunOptions& options,
                                          wire::RunResult& result, EvaluationSetup setup);

/// kCheckFailed where the loss of an evaluation is not finite, with the step of the first.
std::optional<Diagnostic> evaluation_problem(const wire::RunResult& result);

}  // namespace graphpipe::runtime
