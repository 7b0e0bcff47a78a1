#pragma once
// The files that a run writes at its end, following the rule of support/output_file.h.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "support/output_file.h"

namespace graphpipe::runtime {

class OutputFile {
 public:
  /// Throws RunError (kEnvironment) if no file can be created there, or the path is a folder.
  explicit OutputFile(const std::string& path);

  /// Throws RunError (kEnvironment), also if the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Gives the file its final name. Without this call, nothing that was written remains.
  void keep();

 private:
  graphpipe::OutputFile file_;
};

/// Detects, before a long run, what would prevent writing its file afterwards. An empty path means no file. Leaves an
/// existing file unchanged. Throws RunError (kEnvironment).
void check_output(const std::string& path);

}  // namespace graphpipe::runtime
