#include "runtime/tensors.h"

#include <ATen/ops/empty.h>

#include "runtime/error.h"
#include "runtime/tensor_options.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

/// Indexed by the element type.
constexpr at::ScalarType kScalarTypes[] = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool,
    at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2,
    at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu,
    // Types of less than a byte use one byte per element: the code of a float, or an integer's value.
    at::kByte, at::kChar, at::kByte, at::kChar, at::kByte};
static_assert(std::size(kScalarTypes) == std::size(wire::kElementTypes));

int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    fail(Code::kLimitExceeded, "a tensor of the plan has more than 2^63 elements", "generate the folder again");
  return product;
}

}  // namespace

at::ScalarType scalar_type(ElementType type) {
  GP_CHECK(wire::find_element_type(type) != nullptr);
  return kScalarTypes[static_cast<size_t>(type)];
}

std::optional<ElementType> element_type(at::ScalarType type) {
  for (size_t i = 0; i < std::size(kScalarTypes); ++i)
    if (kScalarTypes[i] == type) return static_cast<ElementType>(i);
  return std::nullopt;
}

std::vector<int64_t> shape_of(const TensorRow& row, int64_t samples) {
  std::vector<int64_t> dims;
  dims.reserve(row.dims.size());
  for (const DimRow& dim : row.dims) {
    int64_t size = dim.factor;
    for (int32_t power = 0; power < dim.power; ++power) size = multiply(size, samples);
    dims.push_back(size);
  }
  return dims;
}

int64_t bytes_of(const TensorRow& row, int64_t samples) {
  int64_t bytes = element_size(row.type);
  for (int64_t dim : shape_of(row, samples)) bytes = multiply(bytes, dim);
  return bytes;
}

at::Tensor empty_tensor(const TensorRow& row, int64_t samples, int32_t gpu) {
  return at::empty(shape_of(row, samples), options_on(gpu, scalar_type(row.type)));
}

at::Tensor rows_of(const at::Tensor& item_value, const TensorRow& row, wire::SampleRange item,
                   wire::SampleRange message) {
  if (row.batch_axis < 0 || item == message) return item_value;
  return item_value.narrow(row.batch_axis, (message.first - item.first) * row.rows_per_sample,
                           message.size() * row.rows_per_sample);
}

at::Tensor message_rows(const at::Tensor& item_value, const TensorRow& row, wire::SampleRange item,
                        wire::SampleRange message) {
  const std::vector<int64_t> promised = shape_of(row, item.size());
  if (!item_value.defined() || item_value.sizes() != at::IntArrayRef(promised) ||
      item_value.scalar_type() != scalar_type(row.type)) {
    const std::string found = item_value.defined() ? shape_text({item_value.sizes().data(), item_value.sizes().size()})
                                                   : std::string("nothing");
    fail(Code::kBadSchedule, text("a stage made ", found, " where its table promises ", shape_text(promised)),
         "this is a defect of the generated code: please report it");
  }
  return rows_of(item_value, row, item, message).contiguous();
}

std::span<std::byte> bytes_in(const at::Tensor& tensor) {
  GP_CHECK(tensor.is_contiguous() && tensor.device().is_cpu());
  return {address_of(tensor), tensor.nbytes()};
}

std::byte* address_of(const at::Tensor& tensor) {
  GP_CHECK(tensor.is_contiguous());
  return static_cast<std::byte*>(tensor.numel() == 0 ? nullptr : tensor.data_ptr());
}

}  // namespace graphpipe::runtime
