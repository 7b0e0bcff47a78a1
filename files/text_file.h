#pragma once
// Files as a whole: read with a limit, written so that no reader ever sees half of one.

#include <cstdint>
#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe::files {

/// Errors: kUnreadableFile (missing, not permitted, not a regular file), kLimitExceeded.
Result<std::string> read_file(const std::string& path, int64_t max_bytes);

/// The start of a file, at most `max_bytes` of it, with the whole file's size. Errors: kUnreadableFile.
struct FileStart {
  std::string bytes;
  int64_t file_size = 0;
};
Result<FileStart> read_start(const std::string& path, int64_t max_bytes);

/// A file that appears under its name only when it is complete: it is written beside it under another name, flushed to
/// the disk and renamed. Dropped without commit() it leaves nothing behind.
class AtomicFile {
 public:
  /// Errors here and below: kEnvironment.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::string_view bytes);
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}
  Diagnostic problem(std::string_view what) const;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

/// Writes all of `contents` through an AtomicFile.
Status write_file(const std::string& path, std::string_view contents);

}  // namespace graphpipe::files
