#pragma once
// A file mapped read-only into memory.

#include <cstddef>
#include <span>
#include <string>

namespace graphpipe::runtime {

/// Maps a regular file; it must not be made shorter while it is mapped. Movable; unmaps at its end.
class MappedFile {
 public:
  /// Throws RunError (kUnreadableFile) where the file is missing, not regular or not permitted.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace graphpipe::runtime
