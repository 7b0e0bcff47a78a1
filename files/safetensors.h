#pragma once
// The safetensors format: 8 bytes of header size, a JSON header that says where each tensor lies, the data. Read
// strictly, because files come from anywhere: the data section is covered exactly, without holes or overlaps.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/types.h"
#include "support/result.h"
#include "support/text.h"

namespace graphpipe::files {

struct TensorEntry {
  ModelText name;
  ir::DType dtype = ir::DType::kFloat32;
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

/// The largest header that is read.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// `start` holds at least the file's header.
/// Errors: kMalformedFile, kLimitExceeded; each names the tensor or the field.
Result<SafetensorsIndex> parse_safetensors(std::string_view start, int64_t file_size);
/// Reads the header only. Errors: also kUnreadableFile.
Result<SafetensorsIndex> read_safetensors(const std::string& path);

struct TensorToWrite {
  ModelText name;
  ir::DType dtype = ir::DType::kFloat32;
  std::vector<int64_t> shape;
};
/// Takes the next bytes of the tensor that is being written.
using ByteSink = std::function<Status(std::string_view)>;
/// Hands all bytes of tensor `index` to the sink, in order, in pieces of any size.
using TensorSource = std::function<Status(size_t index, const ByteSink& sink)>;

/// Writes the tensors without holding more than a piece of one. They lie in order of their element width, widest first,
/// and else as given, so that each starts at a multiple of its width. Atomic.
/// Errors: kBadModel (a name twice, or not UTF-8), kLimitExceeded, kUnreadableFile (a source gives another number of
/// bytes than its tensor has), kEnvironment, and what the source returns.
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, const TensorSource& source,
                         const TensorMetadata& metadata = {});

}  // namespace graphpipe::files
