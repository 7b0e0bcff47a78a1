#include "driver/report/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>

#include "files/safetensors.h"
#include "files/text_file.h"
#include "support/half_float.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;

using Tensors = std::map<std::string, std::vector<double>>;

template <typename T, typename Convert>
std::vector<double> numbers_in(std::string_view bytes, const Convert& convert) {
  std::vector<double> numbers;
  numbers.reserve(bytes.size() / sizeof(T));
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + i, sizeof(T));
    numbers.push_back(convert(element));
  }
  return numbers;
}

std::vector<double> decode_numbers(ir::DType dtype, std::string_view bytes) {
  const auto as_double = [](auto number) { return static_cast<double>(number); };
  switch (dtype) {
    case ir::DType::kFloat32:
      return numbers_in<float>(bytes, as_double);
    case ir::DType::kFloat64:
      return numbers_in<double>(bytes, as_double);
    case ir::DType::kFloat16:
      return numbers_in<uint16_t>(bytes, float_of_half);
    case ir::DType::kBFloat16:
      return numbers_in<uint16_t>(bytes, float_of_bfloat);
    case ir::DType::kInt64:
      return numbers_in<int64_t>(bytes, as_double);
    default:
      return numbers_in<uint8_t>(bytes, as_double);  // of integers no rounding: any byte may tell
  }
}

Result<Tensors> read_tensors(const std::string& path) {
  GP_TRY(const std::string content, files::read_file(path, kMaxTensorBytes));
  GP_TRY(const files::SafetensorsIndex index, files::parse_safetensors(content, static_cast<int64_t>(content.size())));
  Tensors tensors;
  for (const files::TensorEntry& entry : index.tensors) {
    const std::string_view bytes(content.data() + entry.offset, static_cast<size_t>(entry.length));
    tensors[entry.name.raw()] = decode_numbers(entry.dtype, bytes);
  }
  return tensors;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

Result<bool> same_bytes(const std::string& a, const std::string& b) {
  GP_TRY(const std::string first, files::read_file(a, kMaxTensorBytes));
  GP_TRY(const std::string second, files::read_file(b, kMaxTensorBytes));
  return first == second;
}

Result<double> largest_difference(const std::string& path, const std::string& reference) {
  GP_TRY(const Tensors mine, read_tensors(path));
  GP_TRY(const Tensors theirs, read_tensors(reference));
  if (mine.size() != theirs.size()) return INFINITY;
  double largest_norm = 0;
  for (const auto& [name, values] : theirs) largest_norm = std::max(largest_norm, norm(values));
  double worst = 0;
  for (const auto& [name, values] : theirs) {
    const auto found = mine.find(name);
    if (found == mine.end() || found->second.size() != values.size()) return INFINITY;
    std::vector<double> difference = values;
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= found->second[i];
    const double relative = norm(difference) / std::max({norm(values), 1e-3 * largest_norm, 1e-30});
    if (std::isnan(relative)) return INFINITY;
    worst = std::max(worst, relative);
  }
  return worst;
}

}  // namespace graphpipe::driver
