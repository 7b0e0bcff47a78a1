#pragma once
// Where a stage's model inputs and labels come from. Which samples a step takes says wire/sample_order.h; synthetic
// data is one batch, repeated, whose elements depend on (seed, name, sample) alone, so that stages, micro-batches and
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
  /// the whole array. Needs: the range lies within samples_of(step). Throws RunError (kBadData): the array does not fit
  /// the row, or an id is out of its bounds.
  virtual at::Tensor item(const DataRow& row, int64_t step, wire::SampleRange range) = 0;
  /// How many samples the step has: the plan's batch, or, at the end of an epoch, what is left of it. Every rank asks
  /// at the start of a step, and may wait here for data that another program makes.
  virtual int64_t samples_of(int64_t step) = 0;
  /// Steps in which every sample is taken once, dropped ones aside.
  virtual int64_t steps_per_epoch() const = 0;
  /// The samples of steps with fewer ones than the batch; the batch where there is no such step.
  virtual int64_t rest() const = 0;
  /// What whoever makes the data calls them, once a step was asked for; empty where nobody does.
  virtual std::string name() const { return {}; }
};

/// Opens the files of a folder (wire/data_folder.h) for the inputs of `table`; or, where it has input_0.pb or
/// test_data_set_0/input_0.pb, an ONNX test data folder: the tensors of all sets, by their names, one after the other
/// along the batch axis, which is where the model has it.
/// The first infinity or NaN that is read of each array is reported on stderr. With `reads_ahead` the items of the next
/// step are read while the current one computes (prefetch.h).
std::unique_ptr<Data> data_folder(const std::string& folder, const wire::DataTable& table, int64_t batch,
                                  const wire::OrderRule& rule, bool reads_ahead = false);
/// Everything in which such a folder does not fit what the plan of a generated folder reads (wire/check_data.h).
/// Throws RunError (kMalformedFile) where a file of ONNX test data is none.
Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                              const std::vector<wire::Padding>& paddings);
/// The steps that the use means for such a folder. Throws RunError.
int64_t steps_in_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                        const std::vector<wire::Padding>& paddings);
/// Floats are standard normal, integers uniform below DataRow::ids.high, or 2.
std::unique_ptr<Data> synthetic_data(int64_t batch, uint64_t seed);

/// N of docs/semantics.md, section 4, for the samples of one update: what their loss is divided by; 0 where no label
/// counts. Needs: the step has these samples.
double loss_divisor(const PlanTable& plan, Data& data, int64_t step, wire::SampleRange update);

/// What every update's loss is divided by.
class LossScales {
 public:
  /// Of the updates in the `steps` steps that follow each other from `first_step` on. Where no label of an update
  /// counts, which is refused unless `may_count_nothing`, its loss of 0 is divided by 1 and has no part in the total.
  LossScales(const PlanTable& plan, Data& data, int64_t first_step, int64_t steps, bool may_count_nothing = false);
  /// N of the update that holds the item. GP_CHECKs that there is one.
  double divisor(wire::SampleRange item) const;
  /// The sum of the divisors of a step, from 0.
  double total(size_t step) const { return totals_[step]; }
  /// The part of its step's loss that an update's loss is: 1 where the step is one update.
  double share(wire::SampleRange item) const;

 private:
  size_t update_of(wire::SampleRange item) const;

  std::vector<wire::SampleRange> updates_;
  std::vector<size_t> step_of_;  // by update
  std::vector<double> divisors_;
  std::vector<double> totals_;  // by step
};

/// Factor that turns the summed gradients of a stage's update into their mean: 1 / (number of loss updates that its
/// range covers; one that it covers in part counts with that part).
double update_factor(const PlanTable& plan, wire::SampleRange update);

}  // namespace graphpipe::runtime
