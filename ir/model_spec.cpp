#include "ir/model_spec.h"

#include <algorithm>
#include <array>

namespace graphpipe::ir {
namespace {

constexpr std::array<std::string_view, 4> kBatchNorms = {"train", "eval", "file", "micro-batch"};

struct PrecisionName {
  std::string_view name;
  DType type;
};
// By Precision.
constexpr std::array<PrecisionName, 3> kPrecisions = {
    {{"float32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}}};

}  // namespace

std::string_view batch_norm_name(BatchNormMode mode) { return kBatchNorms.at(static_cast<size_t>(mode)); }

std::optional<BatchNormMode> batch_norm_of_name(std::string_view name) {
  const auto found = std::ranges::find(kBatchNorms, name);
  if (found == kBatchNorms.end()) return std::nullopt;
  return static_cast<BatchNormMode>(found - kBatchNorms.begin());
}

std::string_view precision_name(Precision precision) { return kPrecisions.at(static_cast<size_t>(precision)).name; }

std::optional<Precision> precision_of_name(std::string_view name) {
  const auto found = std::ranges::find(kPrecisions, name, &PrecisionName::name);
  if (found == kPrecisions.end()) return std::nullopt;
  return static_cast<Precision>(found - kPrecisions.begin());
}

DType compute_type(Precision precision) { return kPrecisions.at(static_cast<size_t>(precision)).type; }

}  // namespace graphpipe::ir
