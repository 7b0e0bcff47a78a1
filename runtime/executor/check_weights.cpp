#include "runtime/executor/check_weights.h"

#include "runtime/tensors.h"
#include "wire/scan_numbers.h"

namespace graphpipe::runtime {

std::optional<std::string> not_finite_tensor(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& named : tensors) {
    const std::optional<ElementType> type = element_type(named.tensor.scalar_type());
    if (!type) continue;
    const at::Tensor dense = named.tensor.contiguous();
    if (const auto found = wire::find_not_finite(*type, dense.sizes(), bytes_in(dense)))
      return text(quoted(ModelText(named.name)), " ", *found);
  }
  return std::nullopt;
}

Diagnostic weights_problem(std::string_view what, const std::string& found) {
  return {.code = Code::kCheckFailed,
          .message = text(what, ": ", found),
          .hint = "lower the learning rate, clip gradients with --clip-norm, or go on from an earlier checkpoint"};
}

}  // namespace graphpipe::runtime
