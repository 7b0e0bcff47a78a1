#pragma once
// A read-only mapping of a whole regular file: what is not looked at is not read.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe {

/// The file must not be made shorter while it is mapped. Movable; unmaps at its end.
class MappedFile {
 public:
  /// Errors: kUnreadableFile where the file is missing, not regular or not permitted; kLimitExceeded where it is larger
  /// than `limit` bytes.
  static Result<MappedFile> open(const std::string& path, int64_t limit = std::numeric_limits<int64_t>::max());

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace graphpipe
