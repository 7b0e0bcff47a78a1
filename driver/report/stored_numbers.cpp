#include "driver/report/stored_numbers.h"

#include <cmath>
#include <cstring>

#include "support/half_float.h"

namespace graphpipe::driver {
namespace {

template <typename T, typename Convert>
void decode_as(std::string_view bytes, std::span<double> out, const Convert& convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = convert(element);
  }
}

size_t width_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32:
      return sizeof(float);
    case ir::DType::kFloat64:
      return sizeof(double);
    case ir::DType::kFloat16:
    case ir::DType::kBFloat16:
      return sizeof(uint16_t);
    case ir::DType::kInt64:
      return sizeof(int64_t);
    default:
      return 1;
  }
}

}  // namespace

size_t StoredNumbers::size() const { return bytes_.size() / width_of(dtype_); }

void StoredNumbers::decode(size_t first, std::span<double> out) const {
  const std::string_view bytes = bytes_.substr(first * width_of(dtype_));
  const auto as_double = [](auto number) { return static_cast<double>(number); };
  switch (dtype_) {
    case ir::DType::kFloat32:
      return decode_as<float>(bytes, out, as_double);
    case ir::DType::kFloat64:
      return decode_as<double>(bytes, out, as_double);
    case ir::DType::kFloat16:
      return decode_as<uint16_t>(bytes, out, float_of_half);
    case ir::DType::kBFloat16:
      return decode_as<uint16_t>(bytes, out, float_of_bfloat);
    case ir::DType::kInt64:
      return decode_as<int64_t>(bytes, out, as_double);
    default:
      return decode_as<uint8_t>(bytes, out, as_double);
  }
}

std::vector<double> StoredNumbers::all() const {
  std::vector<double> numbers(size());
  decode(0, numbers);
  return numbers;
}

double StoredNumbers::norm() const {
  double sum = 0;
  for_each_number(*this, [&](double number) { sum += number * number; });
  return std::sqrt(sum);
}

Result<StoredTensors> StoredTensors::open(const std::string& path) {
  GP_TRY(MappedFile file, MappedFile::open(path));
  const auto size = static_cast<int64_t>(file.bytes().size());
  GP_TRY(files::SafetensorsIndex index, wire::parse_safetensors(file.text(), size));
  StoredTensors out(std::move(file));
  for (files::TensorEntry& entry : index.tensors) out.entries_[entry.name.raw()] = std::move(entry);
  return out;
}

StoredNumbers StoredTensors::numbers(const files::TensorEntry& entry) const {
  return {entry.dtype, file_.text().substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.length))};
}

StoredNumbers StoredTensors::numbers(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? StoredNumbers() : numbers(found->second);
}

}  // namespace graphpipe::driver
