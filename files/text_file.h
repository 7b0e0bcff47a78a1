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

/// Writes all of `contents` through an OutputFile. Errors: kEnvironment.
Status write_file(const std::string& path, std::string_view contents);

}  // namespace graphpipe::files
