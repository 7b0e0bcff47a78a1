#include "runtime/reference/step_records.h"

#include <ATen/ops/empty.h>

#include <map>
#include <vector>

#include "runtime/error.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {
namespace {

// The tensor with a step's loss scale: the scale, and 1 if the gradients overflowed at it.
constexpr const char* kScale = "loss_scale";
constexpr double kAbove = 16;
// Float16 spans 40 powers of two: a value that is not finite below this is not caused by the scale.
constexpr double kSmallest = 0x1p-40;

struct RecordedScale {
  double scale = 0;
  bool overflow = false;
};

void write_scale(const std::string& path, const RecordedScale& recorded) {
  at::Tensor pair = at::empty({2}, at::TensorOptions().dtype(at::kDouble));
  pair.mutable_data_ptr<double>()[0] = recorded.scale;
  pair.mutable_data_ptr<double>()[1] = recorded.overflow ? 1 : 0;
  write_safetensors(path, {{kScale, pair}});
}

RecordedScale read_scale(const std::string& path) {
  const Safetensors file(path);
  const TensorPlace* const place = file.find(kScale);
  const at::Tensor pair = place == nullptr ? at::Tensor() : file.view(*place);
  if (!pair.defined() || pair.scalar_type() != at::kDouble || pair.numel() != 2)
    fail(Code::kMalformedFile, text(quoted(ModelText(path)), " holds no loss scale"), "record the steps of this model");
  return {.scale = pair.const_data_ptr<double>()[0], .overflow = pair.const_data_ptr<double>()[1] != 0};
}

// For all stages, by parameter: what must be restored before a step is run again.
std::vector<std::vector<at::Tensor>> copies_of_sums(Interpreter& interpreter) {
  std::vector<std::vector<at::Tensor>> copies;
  for (const StageState* state : interpreter.all_states())
    for (std::vector<at::Tensor>& of_state = copies.emplace_back(); const at::Tensor& sum : state->gradient_sums)
      of_state.push_back(sum.defined() ? sum.clone() : sum);
  return copies;
}

void put_back(const std::vector<std::vector<at::Tensor>>& sums, Interpreter& interpreter) {
  size_t index = 0;
  for (StageState* state : interpreter.all_states()) state->gradient_sums = sums[index++];
}

}  // namespace

void write_tensors(const std::string& path, const Interpreter& interpreter, const Device& device, NamesOf names_of) {
  if (path.empty()) return;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [key, state] : interpreter.states()) {
    if (state.replica != 0) continue;
    for (const NamedTensor& named : names_of(state, device)) tensors.emplace(named.name, named.tensor);
  }
  std::vector<NamedTensor> sorted;
  for (const auto& [name, tensor] : tensors) sorted.push_back({name, tensor});
  write_safetensors(path, sorted);
}

void StepRecorder::before_step(int64_t step) {
  if (step == 0) write(0, "weights", named_updated_parameters);
}

Request StepRecorder::after_step(const StepFacts& facts) {
  const int64_t step = facts.step + 1;
  write(step, "weights", named_updated_parameters);
  write(step, "gradients", named_gradients);
  write(step, "second_moments", named_second_moments);
  write(step, "update_scales", named_update_scales);
  if (facts.loss_scale > 0)
    write_scale(wire::step_file(folder_, step, kScale), {.scale = facts.loss_scale, .overflow = facts.overflow});
  return {};
}

void StepRecorder::write(int64_t step, const char* kind, NamesOf names_of) const {
  write_tensors(wire::step_file(folder_, step, kind), interpreter_, device_, names_of);
}

StepOutcome StepFollower::run_step(int64_t step) {
  interpreter_.take_weights(Safetensors(wire::step_file(folder_, step, "weights")));
  return scale_ == nullptr ? interpreter_.run_step(step) : run_scaled(step);
}

StepOutcome StepFollower::run_scaled(int64_t step) {
  const RecordedScale recorded = read_scale(wire::step_file(folder_, step + 1, kScale));
  const LossScale before = *scale_;
  const std::vector<std::vector<at::Tensor>> sums = copies_of_sums(interpreter_);
  for (double scale = recorded.overflow ? kAbove * recorded.scale : recorded.scale;; scale /= 2) {
    *scale_ = before;
    scale_->take_scale(scale);
    StepOutcome outcome = interpreter_.run_step(step);
    if (!outcome.overflow || recorded.overflow || scale < kSmallest) return outcome;
    put_back(sums, interpreter_);
  }
}

}  // namespace graphpipe::runtime
