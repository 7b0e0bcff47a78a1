#include "frontend/mask_values.h"

#include <unistd.h>

#include <algorithm>

#include "frontend/external_data.h"
#include "frontend/known.h"

namespace graphpipe::frontend {
namespace {

constexpr double kBelowTables = -9999;
/// A causal mask has a masked value in its first row, whatever its length.
constexpr int64_t kLookedAt = 4096;

/// At most kLookedAt bytes; fewer, or none, if the file cannot be read.
std::string first_bytes(const ir::FileRange& range, const std::string& model_path, const std::string& trusted_root) {
  const Result<int> file = open_weight_file(range.path, model_path, trusted_root);
  if (!file.ok()) return {};
  std::string bytes(static_cast<size_t>(std::min(range.length, kLookedAt)), '\0');
  const ssize_t count = pread(*file, bytes.data(), bytes.size(), range.offset);
  close(*file);
  bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return bytes;
}

}  // namespace

bool holds_mask_values(const ir::DataSource& data, ir::DType dtype, const std::string& model_path,
                       const std::string& trusted_root) {
  if (const auto* filled = std::get_if<ir::FilledData>(&data)) return filled->value < kBelowTables;
  const auto* range = std::get_if<ir::FileRange>(&data);
  std::string bytes = range != nullptr ? first_bytes(*range, model_path, trusted_root)
                                       : std::get<ir::InlineData>(data).bytes.substr(0, kLookedAt);
  const int64_t count = static_cast<int64_t>(bytes.size()) / ir::bytes_per_element(dtype);
  bytes.resize(static_cast<size_t>(count * ir::bytes_per_element(dtype)));
  const std::optional<Known> known = decode_known(dtype, {ir::Dim::fixed(count)}, bytes);
  return known && std::any_of(known->elements.begin(), known->elements.end(),
                              [](const Number& number) { return number.real < kBelowTables; });
}

}  // namespace graphpipe::frontend
