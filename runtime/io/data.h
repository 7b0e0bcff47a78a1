#pragma once
// Where a stage's model inputs and labels come from. wire/sample_order.h decides which samples a step takes; synthetic
// data is one batch, repeated, whose elements depend only on (seed, name, sample), so that stages, micro-batches and
// replicas all see the same.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "runtime/program.h"
#include "support/diagnostic.h"
#include "wire/check_data.h"

namespace graphpipe::runtime {

class Data {
 public:
  virtual ~Data() = default;
  /// The samples `range` of step `step`, in a fresh tensor of exactly the row's shape. A row without a batch axis is
  /// the whole array. Needs: the range lies within samples_of(step). Throws RunError (kBadData) if the array does not
  /// fit the row, or an id is out of bounds.
  virtual at::Tensor item(const DataRow& row, int64_t step, wire::SampleRange range) = 0;
  /// The number of samples of the step: the plan's batch, or, at the end of an epoch, the remainder. Every rank asks at
  /// the start of a step, and may wait here for data that another program produces.
  virtual int64_t samples_of(int64_t step) = 0;
  /// Whether there are data for the step: a producer may have an end that the run's options do not know. Waits like
  /// samples_of(); all ranks get the same answer.
  virtual bool has_step(int64_t step) {
    static_cast<void>(step);
    return true;
  }
  /// Throws what became of the data where has_step() has denied this step.
  virtual void check_end(int64_t step) const { static_cast<void>(step); }
  /// The samples of the steps [first, last), which need not be asked for, in batches of the plan.
  virtual double batches_in(int64_t first, int64_t last) const { return static_cast<double>(last - first); }
  /// Steps in which every sample is taken once, not counting dropped ones.
  virtual int64_t steps_per_epoch() const = 0;
  /// The number of samples of steps with fewer than the batch; the batch if there is no such step.
  virtual int64_t rest() const = 0;
  /// What the producer calls its data, once a step was requested; empty if it has no name for them.
  virtual std::string name() const { return {}; }
};

/// Opens the files of a folder (wire/data_folder.h) for the inputs of `table`; or, if it has input_0.pb or
/// test_data_set_0/input_0.pb, an ONNX test data folder: the tensors of all sets, by name, concatenated along the batch
/// axis, which is the model's. The first infinity or NaN that is read from each array is reported on stderr. With
/// `reads_ahead` the items of the next step are read while the current one computes (prefetch.h).
std::unique_ptr<Data> data_folder(const std::string& folder, const wire::DataTable& table, int64_t batch,
                                  const wire::OrderRule& rule, bool reads_ahead = false);
/// All mismatches between such a folder and what the plan of a generated folder reads (wire/check_data.h). Throws
/// RunError (kMalformedFile) if a file of ONNX test data is malformed.
Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                              const std::vector<wire::Padding>& paddings);
/// The number of steps that the use means for such a folder. Throws RunError.
int64_t steps_in_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                        const std::vector<wire::Padding>& paddings);
/// Floats are standard normal, integers uniform below DataRow::ids.high, or 2.
std::unique_ptr<Data> synthetic_data(int64_t batch, uint64_t seed);

/// N of docs/semantics.md, section 4, for the samples of one update: the divisor of their loss, or of a term of it; 0
/// if no label counts. Needs: the step has these samples.
double loss_divisor(const LossRow& loss, Data& data, int64_t step, wire::SampleRange update);

/// The divisor of every update's loss.
class LossScales {
 public:
  /// For the updates in `steps` consecutive steps from `first_step` on. The loss, or the term, of an update in which no
  /// label counts is 0: it is divided by 1, and the loss does not contribute to the total.
  LossScales(const PlanTable& plan, Data& data, int64_t first_step, int64_t steps);
  /// Names the first update in which no label counts, whose mean loss is undefined; empty if there is none.
  const std::string& undefined() const { return undefined_; }
  /// Of the update that holds the item: N, and that of every term. GP_CHECKs that there is such an update.
  const std::vector<double>& divisors(wire::SampleRange item) const;
  /// The sum of the divisors of a step, from 0.
  double total(size_t step) const { return totals_[step]; }
  /// The share of an update's loss in the loss of its step: 1 if the step is one update, or the loss a sum.
  double share(wire::SampleRange item) const;

 private:
  size_t update_of(wire::SampleRange item) const;
  void add_divisor(const LossRow& loss, Data& data, int64_t step, wire::SampleRange update);

  bool is_sum_;
  std::vector<wire::SampleRange> updates_;
  std::vector<size_t> step_of_;  // by update
  std::vector<std::vector<double>> divisors_;
  std::vector<double> totals_;  // by step
  std::string undefined_;
};

/// The factor that turns the summed gradients of a stage's update into their mean: 1 / (number of loss updates that its
/// range covers; one that it covers partially counts by that fraction).
double update_factor(const PlanTable& plan, wire::SampleRange update);

}  // namespace graphpipe::runtime
