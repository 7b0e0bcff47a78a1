#include "ir/plan.h"

#include <array>

namespace graphpipe::ir {
namespace {

constexpr std::array<std::string_view, 4> kBatchNorms = {"train", "eval", "file", "micro-batch"};

template <typename Kind, size_t N>
std::optional<Kind> kind_of_name(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Kind>(i);
  return std::nullopt;
}

}  // namespace

std::string_view batch_norm_name(BatchNormMode mode) { return kBatchNorms.at(static_cast<size_t>(mode)); }
std::optional<BatchNormMode> batch_norm_of_name(std::string_view name) {
  return kind_of_name<BatchNormMode>(kBatchNorms, name);
}

}  // namespace graphpipe::ir
