#pragma once
// The model's outputs, for programs that only run forwards and for evaluations during training: kept item by item on
// the rank that computes them, and assembled by sample at the end.

#include "runtime/device/device.h"
#include "runtime/io/safetensors.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

class KeptOutputs {
 public:
  /// Keeps the outputs that an item's forward has left in its slot. `first_sample` counts across all steps.
  void keep(const StageEntry& entry, const std::vector<at::Tensor>& slot, wire::SampleRange item, int64_t first_sample,
            const Device& device);
  /// The names sort the parts of all ranks into the order that write_outputs() needs.
  const std::vector<NamedTensor>& parts() const { return parts_; }
  void clear() { parts_.clear(); }

 private:
  std::vector<NamedTensor> parts_;
};

/// Writes one tensor per output, samples first and in order. Warns of the first number that is not finite: a mask may
/// hold infinities on purpose. Needs: parts of all ranks, sorted by name. Throws RunError.
void write_outputs(const std::string& path, const std::vector<NamedTensor>& parts);

}  // namespace graphpipe::runtime
