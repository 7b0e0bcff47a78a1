#include "ir/types.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace graphpipe::ir {
namespace {

const wire::ElementTypeInfo& info_of(DType dtype) {
  const wire::ElementTypeInfo* info = wire::find_element_type(dtype);
  GP_CHECK(info != nullptr);
  return *info;
}

constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int64_t kMaxBytes = int64_t{1} << 56;

}  // namespace

std::string_view dtype_name(DType dtype) { return info_of(dtype).short_name; }

std::optional<DType> dtype_of_name(std::string_view name) {
  const wire::ElementTypeInfo* info = wire::find_element_type(&wire::ElementTypeInfo::short_name, name);
  if (info == nullptr) return std::nullopt;
  return info->type;
}

int64_t bytes_per_element(DType dtype) { return info_of(dtype).bytes; }

bool is_floating(DType dtype) { return info_of(dtype).is_floating; }

std::optional<int64_t> size_at(Dim dim, Samples samples) {
  int64_t size = dim.factor;
  for (int i = 0; i < dim.power; ++i)
    if (__builtin_mul_overflow(size, samples.count, &size)) return std::nullopt;
  return size;
}

int64_t Dim::at(Samples samples) const {
  GP_CHECK(samples.count >= 0);
  const std::optional<int64_t> size = size_at(*this, samples);
  GP_CHECK(size.has_value());
  return *size;
}

std::optional<Dim> element_count(const Shape& shape) {
  Dim count;
  const bool has_zero = std::ranges::any_of(shape, [](Dim dim) { return dim.factor == 0; });
  if (has_zero) return Dim::fixed(0);
  for (Dim dim : shape) {
    if (__builtin_mul_overflow(count.factor, dim.factor, &count.factor) || count.factor > kMaxElements ||
        count.factor < 0)
      return std::nullopt;
    count.power += dim.power;
  }
  return count;
}

Bytes byte_size(const TensorType& type, Samples samples) {
  GP_CHECK(samples.count >= 0);
  const std::optional<Dim> count = element_count(type.shape);
  if (!count) return Bytes(kMaxBytes);
  const std::optional<int64_t> elements = size_at(*count, samples);
  const int64_t width = bytes_per_element(type.dtype);
  if (!elements || *elements > kMaxBytes / width) return Bytes(kMaxBytes);
  return Bytes(*elements * width);
}

std::string_view batch_kind_name(BatchKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "axis", "mixed"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 3> kNames = {"F", "I", "W"};
  return kNames.at(static_cast<size_t>(phase));
}

}  // namespace graphpipe::ir
