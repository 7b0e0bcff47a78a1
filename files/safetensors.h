#pragma once
// safetensors files (wire/safetensors.h): their headers read, and whole files written.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types.h"
#include "support/result.h"
#include "support/text.h"
#include "wire/safetensors.h"

namespace graphpipe::files {

using wire::SafetensorsIndex, wire::TensorEntry, wire::TensorMetadata;

/// Reads the header only. Errors: kMalformedFile, kLimitExceeded, kUnreadableFile.
Result<SafetensorsIndex> read_safetensors(const std::string& path);

struct TensorToWrite {
  ModelText name;
  ir::DType dtype = ir::DType::kFloat32;
  std::vector<int64_t> shape;
};
/// UTF-8, and not the name that the format keeps for itself.
bool can_name_tensor(std::string_view name);

/// Whether a file can hold these tensors together. Errors: kBadModel (a name that is no UTF-8, or of two tensors),
/// kLimitExceeded.
Status check_tensors(const std::vector<TensorToWrite>& tensors);

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
