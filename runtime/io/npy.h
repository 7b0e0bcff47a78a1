#pragma once
// A strict reader of NumPy's .npy format, versions 1.0 to 3.0: little-endian or single-byte elements of the types that
// plans know, C order, and exactly as many bytes as the shape asks for.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "support/mapped_file.h"

namespace graphpipe::runtime {

struct NpyHeader {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  size_t data_offset = 0;
};

/// Reads the header of a whole file's bytes. Throws RunError (kMalformedFile); `name` goes into the message.
NpyHeader read_npy_header(std::span<const std::byte> file, const std::string& name);

/// A mapped .npy file whose first axis is samples.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);
  const NpyHeader& header() const { return header_; }
  const std::byte* data() const { return file_.bytes().data() + header_.data_offset; }

 private:
  MappedFile file_;
  NpyHeader header_;
};

}  // namespace graphpipe::runtime
