#pragma once
// A file that a run writes at its end: under a temporary name first, so that whoever reads the path finds the old file
// or the whole new one. A pipe or a device is written to as it is.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace graphpipe::runtime {

class OutputFile {
 public:
  /// Throws RunError (kEnvironment) where no file can be made there, or the path is a folder.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  /// Removes what was written, unless it was kept.
  ~OutputFile();

  /// Throws RunError (kEnvironment), also where the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Gives the file its name.
  void keep();

 private:
  [[noreturn]] void refuse() const;

  std::string path_, temporary_;
  FILE* file_ = nullptr;
};

/// Finds out before a long run what would refuse its file after it. An empty path is none. Leaves an old file as it is.
void check_output(const std::string& path);

}  // namespace graphpipe::runtime
