#pragma once
// A strict reader of the header of NumPy's .npy format, versions 1.0 to 3.0: little-endian or single-byte elements of
// the types that plans know, C order, and exactly as many bytes as the shape asks for.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "support/result.h"
#include "wire/element_type.h"

namespace graphpipe::wire {

struct NpyHeader {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  size_t data_offset = 0;
};

/// Reads the header of a whole file's bytes. Errors: kMalformedFile; `name` is the file's, for the message.
Result<NpyHeader> read_npy_header(std::span<const std::byte> file, const std::string& name);

}  // namespace graphpipe::wire
