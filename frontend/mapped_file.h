#pragma once
// A read-only mapping of a whole regular file, so that scanning a model does not read its weights.

#include <cstdint>
#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe::frontend {

class MappedFile {
 public:
  /// Refuses what is not a regular file and what is larger than `limit` bytes.
  static Result<MappedFile> open(const std::string& path, int64_t limit);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}

  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace graphpipe::frontend
