#pragma once
// Scans a model file before any object is built from it: counts messages, strings, nodes and tensors, limits the depth,
// records where the bytes of every large tensor are, and writes the file again without them.
//
// In the stripped bytes a tensor with large or external data is external with the location "slot N", N an index into
// WireScan::slots. No other tensor in them is external, so a file cannot forge a slot. Comments and per-node metadata
// are dropped, which can be most of the file, but for the calls that nodes were exported from, their places
// (exported_call.h), and what tensors were computed from (folding_note.h).

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "frontend/import_onnx.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Dense little-endian elements inside the model file.
struct InlineSlot {
  int64_t offset = 0;
  int64_t length = 0;
};
/// External data as declared in the file, unchecked text.
struct ExternalSlot {
  std::string location, offset, length;
  bool has_offset = false, has_length = false;
};
using Slot = std::variant<InlineSlot, ExternalSlot>;

struct WireScan {
  std::string stripped;
  std::vector<Slot> slots;
  int64_t items = 0, nodes = 0, tensors = 0;
};

/// Float tensors up to this size and integer tensors up to the other stay in the stripped bytes, because
/// conversion and folding read small constants.
inline constexpr int64_t kKeptFloatBytes = 32;
inline constexpr int64_t kKeptIntegerBytes = 8192;

/// Needs: the bytes of the whole file. Errors: kMalformedFile, kLimitExceeded.
Result<WireScan> scan_wire(std::string_view file, const Limits& limits);

}  // namespace graphpipe::frontend
