#pragma once
// Where a stage's model inputs and labels come from. Step i takes the samples [i*B, (i+1)*B) of the data, modulo its
// length; synthetic data is one batch, repeated, whose elements depend on (seed, name, sample) alone, so that stages,
// micro-batches and replicas all see the same.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "runtime/npy.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

class Data {
 public:
  virtual ~Data() = default;
  /// The samples `range` of step `step`, in a fresh tensor of exactly the row's shape. A row without a batch axis is
  /// the whole array. Throws RunError (kBadData).
  virtual at::Tensor item(const DataRow& row, int64_t batch, int64_t step, wire::SampleRange range) = 0;
};

/// DIR/NAME.npy per name; marks that file names cannot hold are '_'.
std::unique_ptr<Data> npy_folder(const std::string& folder);
/// Floats are standard normal, integers uniform below DataRow::limit.
std::unique_ptr<Data> synthetic_data(uint64_t seed);

/// N of semantics, section 4: what a step's loss is divided by. `label` is the row of LossRow::label; null where the
/// normalizer needs none.
double loss_divisor(const PlanTable& plan, const DataRow* label, Data& data, int64_t step);

}  // namespace graphpipe::runtime
