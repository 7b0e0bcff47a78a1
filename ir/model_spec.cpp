#include "ir/model_spec.h"

#include <algorithm>
#include <array>

namespace graphpipe::ir {
namespace {

constexpr std::array<std::string_view, 4> kBatchNorms = {"train", "eval", "file", "micro-batch"};

}  // namespace

std::string_view batch_norm_name(BatchNormMode mode) { return kBatchNorms.at(static_cast<size_t>(mode)); }

std::optional<BatchNormMode> batch_norm_of_name(std::string_view name) {
  const auto found = std::ranges::find(kBatchNorms, name);
  if (found == kBatchNorms.end()) return std::nullopt;
  return static_cast<BatchNormMode>(found - kBatchNorms.begin());
}

}  // namespace graphpipe::ir
