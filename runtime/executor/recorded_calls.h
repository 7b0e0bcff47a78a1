#pragma once
// The calls of stage functions in a device's steps, which are the same in every step: in the first step they are made,
// in the second they are recorded (device/recorder.h), from the third on the recordings are run. A step that goes
// through the same code costs its host one launch per call in place of one per kernel.
//
// A recording works on the addresses of its call. Tensors that recorded calls make have them again in every step: they
// lie in the recordings' memory. What comes from elsewhere, data, received values, is copied to the place that it had
// when the call was recorded, and lies there from then on: no call may follow the reduction of its own accumulators,
// which works on them where it found them. Weights must lie where they lay; if they moved, the function is called.
// The number of the step, by which random numbers are drawn, is read in the device's memory.

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "runtime/device/recorder.h"
#include "runtime/program.h"
#include "wire/result_lines.h"

namespace graphpipe::runtime {

class Device;

class RecordedCalls {
 public:
  /// The device must outlive it.
  explicit RecordedCalls(const Device& device) : device_(device) {}

  /// All calls until the next begin_step() are those of one step.
  void begin_step();
  /// As function(arguments), for a function of `entry`. Afterwards what messages carry lies in memory of its own: they
  /// may read it when a later call already uses the recordings' memory again.
  void call(StageFunction function, const StageArguments& arguments, const StageEntry& entry);
  /// Of the last step.
  wire::GraphUse use() const { return use_; }

 private:
  /// A tensor of a call: a gradient accumulator or an entry of the item's slot.
  struct Place {
    size_t index = 0;
    at::Tensor tensor;
  };
  struct Call {
    StageFunction function = nullptr;
    int64_t first_sample = 0;
    std::unique_ptr<Recording> recording;  // null: the function is called
    std::vector<const void*> weights;
    std::vector<Place> inputs;   // all that are defined before the call
    std::vector<Place> outputs;  // what it changes; undefined: resets
  };
  class Tables;
  class Found;

  /// None if the call cannot be recorded: it has not been made then. A recorded one has not been run either.
  std::optional<Call> record(StageArguments arguments, StageFunction function, Tables& tables);
  /// The recordings that are run from here on are of this step.
  void show_step(uint64_t step);
  bool place_inputs(Call& call, Tables& tables);
  bool note_outputs(Call& call, const std::vector<Found>& before, Tables& tables);
  static void put_back(const Call& call, const std::vector<Found>& before, Tables& tables);
  /// Returns false, and changes nothing, if the call's tensors are not those that were recorded.
  static bool replay(const Call& call, Tables& tables);
  void give_up();

  const Device& device_;
  std::unique_ptr<Recorder> recorder_;
  std::vector<Call> calls_;
  std::unordered_set<const void*> recorded_memory_;  // storages, in the step that is recorded
  /// In the step that is recorded: no later call may take the memory of its gradients, which are read when messages of
  /// other ranks arrive, sooner or later.
  std::vector<at::Tensor> claims_;
  at::Tensor step_on_device_;
  uint64_t shown_step_ = 0;
  int64_t steps_ = 0, size_ = 0;
  wire::GraphUse use_;
  size_t next_ = 0;
  bool records_ = false;  // this step
  bool lacks_memory_ = false;
};

}  // namespace graphpipe::runtime
