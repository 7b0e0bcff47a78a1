#include "runtime/executor/check_loss.h"

#include <cmath>
#include <utility>

#include "runtime/error.h"
#include "runtime/executor/resolve.h"
#include "runtime/tensors.h"
#include "wire/scan_numbers.h"

namespace graphpipe::runtime {
namespace {

std::optional<std::string> not_finite_in(const at::Tensor& tensor, ElementType type, const Device& device) {
  if (!tensor.defined() || tensor.scalar_type() != scalar_type(type)) return std::nullopt;
  const at::Tensor dense = device.download(tensor).contiguous();
  return wire::find_not_finite(type, dense.sizes(), bytes_in(dense));
}

// In order of cause and effect: bad weights spoil what is computed from them.
std::string first_not_finite_input(const PlanTable& plan, const StageState& state, const std::vector<at::Tensor>& slot,
                                   const wire::ActionRow& row, const Device& device) {
  const std::vector<at::Tensor>& weights = weights_of(state, row.version);
  const auto in_slot = [&](int32_t index, ElementType type) {
    return not_finite_in(slot[static_cast<size_t>(index)], type, device);
  };
  for (size_t i = 0; i < weights.size(); ++i) {
    const ParamRow& param = state.entry->params[i];
    if (param.role == ParamRole::kConstant) continue;  // a mask may hold infinities
    if (const auto found = not_finite_in(weights[i], param.tensor.type, device))
      return text("of the weights ", quoted(ModelText(param.name)), " ", *found);
  }
  for (const BoundaryRow& boundary : state.entry->boundaries) {
    if (!boundary.is_input) continue;
    if (const auto found = in_slot(boundary.slot, boundary.tensor.type))
      return text("of what the stage received from stage ", plan.edges[static_cast<size_t>(boundary.edge)].from, " ",
                  *found);
  }
  for (const DataRow& data : state.entry->data)
    if (const auto found = in_slot(data.slot, data.tensor.type))
      return text("of the data ", quoted(ModelText(data.name)), " ", *found);
  return not_finite_value(*state.entry, slot, device)
      .value_or("weights, inputs and values of the stage are finite, as far as they are still held");
}

constexpr std::string_view kLossOfStep = "the loss of step ";

}  // namespace

std::optional<std::string> loss_problem(double loss, const PlanTable& plan, const StageState& state,
                                        const std::vector<at::Tensor>& slot, const wire::ActionRow& row, int64_t step,
                                        const Device& device) {
  if (std::isfinite(loss)) return std::nullopt;
  return text(kLossOfStep, step + 1, " is ", std::isnan(loss) ? "not a number (NaN)" : "infinite", ", at ",
              describe(plan, row), ": ", first_not_finite_input(plan, state, slot, row, device));
}

bool may_be_of_scale(double loss) { return std::isinf(loss); }

bool tells_of_loss(std::string_view words) { return words.find(kLossOfStep) != std::string_view::npos; }

std::optional<std::string> not_finite_value(const StageEntry& entry, const std::vector<at::Tensor>& slot,
                                            const Device& device) {
  for (const KeptRow& row : entry.kept) {
    const at::Tensor& value = slot[static_cast<size_t>(row.slot)];
    const std::optional<ElementType> type = value.defined() ? element_type(value.scalar_type()) : std::nullopt;
    if (!type) continue;
    if (const auto found = not_finite_in(value, *type, device))
      return text("the value of ", quoted(ModelText(row.op)), " ", quoted(ModelText(row.name)), " ", *found);
  }
  return std::nullopt;
}

void fail_of_loss(std::string problem) {
  fail(Code::kCheckFailed, std::move(problem),
       "lower the learning rate, look at the data of these samples, or, where the schedule is synchronous, clip "
       "gradients "
       "with --clip-norm or skip such steps with --on-anomaly skip");
}

}  // namespace graphpipe::runtime
