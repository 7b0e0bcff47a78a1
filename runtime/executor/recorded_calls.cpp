#include "runtime/executor/recorded_calls.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/device/device.h"

namespace graphpipe::runtime {
namespace {

/// Recorded kernels take memory of the host and of the device, on the order of a kilobyte each.
constexpr int64_t kMaxRecorded = 200'000;

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().data(); }

/// Whether it is known by an address of the device.
bool is_plain(const at::Tensor& tensor, const Device& device) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() == device.is_host();
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return b.layout() == at::kStrided && a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.sizes() == b.sizes();
}

/// The tensor without a claim to its memory.
at::Tensor name_of_memory(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

/// A tensor that a call found, without a claim to its memory: what the call releases, it may take again.
class RecordedCalls::Found {
 public:
  explicit Found(const at::Tensor& tensor) : was_defined_(tensor.defined()), tensor_(tensor.getIntrusivePtr()) {}
  bool is(const at::Tensor& now) const {
    return was_defined_ == now.defined() && (!was_defined_ || tensor_.lock().get() == now.unsafeGetTensorImpl());
  }

 private:
  bool was_defined_;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
};

/// The gradient accumulators and the slot of a call, as one sequence.
class RecordedCalls::Tables {
 public:
  Tables(const StageArguments& arguments, const StageEntry& entry)
      : entry_(entry),
        weights_(arguments.weights, entry.params.size()),
        gradients_(arguments.gradients, arguments.gradients == nullptr ? 0 : entry.params.size()),
        slot_(arguments.slot, static_cast<size_t>(entry.slot_size)) {}

  std::span<const at::Tensor> weights() const { return weights_; }
  size_t size() const { return gradients_.size() + slot_.size(); }
  at::Tensor& operator[](size_t index) {
    return index < gradients_.size() ? gradients_[index] : slot_[index - gradients_.size()];
  }
  /// Copies what the call has made for messages out of the recordings' memory.
  void copy_out(const std::vector<Place>& outputs) {
    for (const Place& output : outputs)
      if (output.tensor.defined() && leaves(output.index)) (*this)[output.index] = (*this)[output.index].clone();
  }

  /// Adds the accumulators among the outputs to the claims.
  void claim_gradients(const std::vector<Place>& outputs, std::vector<at::Tensor>& claims) {
    for (const Place& output : outputs)
      if (output.index < gradients_.size() && output.tensor.defined()) claims.push_back((*this)[output.index]);
  }

 private:
  bool leaves(size_t index) const {
    if (index < gradients_.size()) return false;
    const auto slot = static_cast<int32_t>(index - gradients_.size());
    for (const BoundaryRow& row : entry_.boundaries) {
      if (!row.is_input && slot == row.slot) return true;
      if (row.is_input && row.gradient_slot >= 0 && slot >= row.gradient_slot &&
          slot < row.gradient_slot + row.gradient_count)
        return true;
    }
    return false;
  }

  const StageEntry& entry_;
  std::span<const at::Tensor> weights_;
  std::span<at::Tensor> gradients_, slot_;
};

void RecordedCalls::begin_step() {
  constexpr int64_t kRecorded = 1;
  const int64_t step = steps_++;
  records_ = step == kRecorded;
  if (records_) recorder_ = device_.open_recorder();
  if (step == kRecorded + 1 && recorder_ != nullptr) recorder_->finish();
  recorded_memory_.clear();
  claims_.clear();
  next_ = 0;
  use_ = {};
}

void RecordedCalls::call(StageFunction function, const StageArguments& arguments, const StageEntry& entry) {
  ++use_.calls;
  if (recorder_ == nullptr) return function(arguments);
  Tables tables(arguments, entry);
  show_step(arguments.step);
  if (records_) {
    std::optional<Call> call = record(arguments, function, tables);
    if (call) {
      call->recording->run();
      tables.copy_out(call->outputs);
      ++use_.graphs;
    } else {
      function(arguments);
    }
    if (lacks_memory_) return give_up();
    if (call) tables.claim_gradients(call->outputs, claims_);
    calls_.push_back(call ? *std::move(call) : Call{.function = function});
    return;
  }
  const size_t index = next_++;
  if (index >= calls_.size() || calls_[index].function != function ||
      calls_[index].first_sample != arguments.first_sample || !replay(calls_[index], tables))
    return function(arguments);
  tables.copy_out(calls_[index].outputs);
  ++use_.graphs;
}

void RecordedCalls::show_step(uint64_t step) {
  const auto number = static_cast<int64_t>(step);
  if (!step_on_device_.defined()) step_on_device_ = device_.upload(at::full({}, number, at::kLong));
  else if (step != shown_step_) step_on_device_.fill_(number);
  shown_step_ = step;
}

std::optional<RecordedCalls::Call> RecordedCalls::record(StageArguments arguments, StageFunction function,
                                                         Tables& tables) {
  if (size_ >= kMaxRecorded) return std::nullopt;
  Call call{.function = function, .first_sample = arguments.first_sample};
  arguments.step_on_device = step_on_device_.const_data_ptr<int64_t>();
  std::vector<Found> before;
  try {
    if (!place_inputs(call, tables)) return std::nullopt;
    for (size_t i = 0; i < tables.size(); ++i) before.emplace_back(tables[i]);
    call.recording = recorder_->record([&] { function(arguments); });
    if (call.recording != nullptr && note_outputs(call, before, tables)) {
      size_ += call.recording->size();
      return call;
    }
  } catch (const c10::OutOfMemoryError&) {
    lacks_memory_ = true;
  }
  if (!before.empty()) put_back(call, before, tables);
  return std::nullopt;
}

// The call will be made, and change again what it has changed: the memory that it has released still holds the values,
// since nothing has been run and the recordings keep it until the call has been made.
void RecordedCalls::put_back(const Call& call, const std::vector<Found>& before, Tables& tables) {
  auto input = call.inputs.begin();
  for (size_t i = 0; i < tables.size(); ++i) {
    const bool is_input = input != call.inputs.end() && input->index == i;
    if (!before[i].is(tables[i])) tables[i] = is_input ? input->tensor : at::Tensor();
    if (is_input) ++input;
  }
}

bool RecordedCalls::place_inputs(Call& call, Tables& tables) {
  for (const at::Tensor& weight : tables.weights()) {
    if (!is_plain(weight, device_)) return false;
    call.weights.push_back(weight.data_ptr());
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    at::Tensor& input = tables[i];
    if (!input.defined()) continue;
    if (!is_plain(input, device_)) return false;
    if (!recorded_memory_.contains(storage_of(input))) {
      if (!input.is_non_overlapping_and_dense()) return false;  // no copy has its layout
      input = recorder_->copy(input);
      recorded_memory_.insert(storage_of(input));
    }
    call.inputs.push_back({i, name_of_memory(input)});
  }
  return true;
}

bool RecordedCalls::note_outputs(Call& call, const std::vector<Found>& before, Tables& tables) {
  for (size_t i = 0; i < tables.size(); ++i) {
    const at::Tensor& output = tables[i];
    if (before[i].is(output)) continue;
    if (output.defined() && !is_plain(output, device_)) return false;
    call.outputs.push_back({i, output.defined() ? name_of_memory(output) : at::Tensor()});
    const auto shares = [&](const at::Tensor& weight) { return storage_of(weight) == storage_of(output); };
    if (output.defined() && std::ranges::none_of(tables.weights(), shares)) recorded_memory_.insert(storage_of(output));
  }
  return true;
}

bool RecordedCalls::replay(const Call& call, Tables& tables) {
  if (call.recording == nullptr) return false;
  for (size_t i = 0; i < call.weights.size(); ++i)
    if (tables.weights()[i].data_ptr() != call.weights[i]) return false;
  auto input = call.inputs.begin();
  for (size_t i = 0; i < tables.size(); ++i) {
    const bool is_input = input != call.inputs.end() && input->index == i;
    if (tables[i].defined() != is_input || (is_input && !same_form(input->tensor, tables[i]))) return false;
    if (is_input) ++input;
  }
  for (const auto& [index, place] : call.inputs) {
    if (tables[index].data_ptr() != place.data_ptr()) place.copy_(tables[index]);
    tables[index] = place;
  }
  call.recording->run();
  for (const auto& [index, output] : call.outputs) tables[index] = output;
  return true;
}

void RecordedCalls::give_up() {
  device_.finish();  // recordings may still run
  calls_.clear();
  claims_.clear();
  recorder_.reset();
}

}  // namespace graphpipe::runtime
