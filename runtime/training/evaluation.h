#pragma once
// The loss of data that are not trained on, and the model's outputs for them: forwards only, by the training's own
// stages, with its weights as they stand. Dropout drops nothing and BatchNorm takes its running statistics, which stay
// as they are: a training is the same with and without it, to the bit.

#include <functional>
#include <memory>

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
  /// Batches of the data; the last one may have fewer samples.
  int64_t batches = 0;
  /// Null: there is no other rank.
  Gather* gather = nullptr;
  int32_t rank = 0;
  /// Waits until it is ready, as long as it takes, while the other ranks know that this one works. Absent: no rank
  /// would miss it.
  std::function<void(const std::function<bool()>& ready)> wait;
  /// Waits until nothing of the training is under way on this rank, and later nothing of the evaluation; may be absent.
  std::function<void()> begin, end;
  /// The forwards of a batch.
  std::function<StepOutcome(int64_t batch)> run_batch;
  /// Takes the outputs of all forwards of this rank. Null: nobody asks for them.
  KeptOutputs* outputs = nullptr;
};

/// Evaluates at a period of steps and after the last, and adds losses and steps to the result of rank 0. The loss
/// is the mean over all that counts in all batches, a sum where the loss of the plan is one. Outputs go into a file,
/// over those of the evaluation before. All that it is given must outlive it.
class Evaluation : public StepObserver {
 public:
  Evaluation(const wire::RunOptions& options, wire::RunResult& result, EvaluationSetup setup)
      : options_(options), result_(result), setup_(std::move(setup)) {}

  Request after_step(const StepFacts& facts) override;

 private:
  std::vector<LossShare> run_batches() const;
  void write_outputs() const;
  double loss_of(const std::vector<std::vector<LossShare>>& of_ranks) const;

  const wire::RunOptions& options_;
  wire::RunResult& result_;
  EvaluationSetup setup_;
};

/// The evaluation that the options ask for; null where there are no data for it. Fills in what `setup` has of the plan
/// and the data.
std::unique_ptr<Evaluation> evaluation_of(const PlanTable& plan, const Data* data, const wire::RunOptions& options,
                                          wire::RunResult& result, EvaluationSetup setup);

}  // namespace graphpipe::runtime
