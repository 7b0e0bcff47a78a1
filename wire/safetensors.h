#pragma once
// The header of a safetensors file, which both sides read and write: 8 bytes of its size, little-endian, then JSON that
// says where each tensor lies, then the data. Read strictly, because files come from anywhere: the data section is
// covered exactly, without holes or overlaps.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/result.h"
#include "support/text.h"
#include "wire/element_type.h"

namespace graphpipe::wire {

struct TensorEntry {
  ModelText name;
  ElementType dtype = ElementType::kFloat32;
  std::vector<int64_t> shape;
  /// From the start of the file, and in bytes: elements times their width.
  int64_t offset = 0;
  int64_t length = 0;
  bool operator==(const TensorEntry&) const = default;
};

using TensorMetadata = std::vector<std::pair<ModelText, ModelText>>;

struct SafetensorsIndex {
  /// In the order in which they lie in the file.
  std::vector<TensorEntry> tensors;
  TensorMetadata metadata;
  bool operator==(const SafetensorsIndex&) const = default;
};

/// The largest header that is read or written.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;
/// The name of the metadata, which no tensor can have.
inline constexpr std::string_view kMetadataName = "__metadata__";

/// Bytes of a tensor, or nothing where a size is negative or they leave int64_t.
std::optional<int64_t> byte_length(ElementType dtype, std::span<const int64_t> shape);

/// Bytes of the JSON. `start` holds at least the first 8 bytes of the file.
/// Errors: kMalformedFile, kLimitExceeded.
Result<int64_t> safetensors_header_size(std::string_view start, int64_t file_size);

/// `start` holds at least the file's header.
/// Errors: kMalformedFile, kLimitExceeded; each names the tensor.
Result<SafetensorsIndex> parse_safetensors(std::string_view start, int64_t file_size);

/// The start of a file whose data are these tensors in this order, padded so that the data begin at a multiple of 8; of
/// each entry the name, type and shape count. Needs: distinct names, shapes with a byte_length.
/// Errors: kLimitExceeded.
Result<std::string> print_safetensors_header(std::span<const TensorEntry> tensors, const TensorMetadata& metadata = {});

}  // namespace graphpipe::wire
