#include "frontend/first_elements.h"

#include <unistd.h>

#include <algorithm>

#include "frontend/external_data.h"
#include "frontend/known.h"

namespace graphpipe::frontend {
namespace {

constexpr size_t kDecodedTogether = 1024;  // fewer than are ever known of one tensor

/// Fewer, or none, if the file cannot be read.
std::string first_bytes(const ir::FileRange& range, int64_t max_bytes, const std::string& model_path,
                        const std::string& trusted_root) {
  const Result<int> file = open_weight_file(range.path, model_path, trusted_root);
  if (!file.ok()) return {};
  std::string bytes(static_cast<size_t>(std::min(range.length, max_bytes)), '\0');
  const ssize_t count = pread(*file, bytes.data(), bytes.size(), range.offset);
  close(*file);
  bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return bytes;
}

}  // namespace

std::vector<double> first_elements(const ir::DataSource& data, ir::DType dtype, int64_t max_bytes,
                                   const std::string& model_path, const std::string& trusted_root) {
  if (const auto* filled = std::get_if<ir::FilledData>(&data)) return {filled->value};
  const auto* range = std::get_if<ir::FileRange>(&data);
  std::string bytes = range != nullptr ? first_bytes(*range, max_bytes, model_path, trusted_root)
                                       : std::get<ir::InlineData>(data).bytes.substr(0, static_cast<size_t>(max_bytes));
  const auto width = static_cast<size_t>(ir::bytes_per_element(dtype));
  std::vector<double> elements;
  for (size_t at = 0; at + width <= bytes.size(); at += kDecodedTogether * width) {
    const size_t count = std::min(kDecodedTogether, (bytes.size() - at) / width);
    const std::optional<Known> known =
        decode_known(dtype, {ir::Dim::fixed(static_cast<int64_t>(count))}, bytes.substr(at, count * width));
    if (!known) return {};
    for (const Number& number : known->elements) elements.push_back(number.real);
  }
  return elements;
}

}  // namespace graphpipe::frontend
