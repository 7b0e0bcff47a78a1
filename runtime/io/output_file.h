#pragma once
// The files that a run writes at its end, by the rule of support/output_file.h.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "support/output_file.h"

namespace graphpipe::runtime {

class OutputFile {
 public:
  /// Throws RunError (kEnvironment) where no file can be made there, or the path is a folder.
  explicit OutputFile(const std::string& path);

  /// Throws RunError (kEnvironment), also where the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Gives the file its name. Without it, nothing is left of what was written.
  void keep();

 private:
  graphpipe::OutputFile file_;
};

/// Finds out before a long run what would refuse its file after it. An empty path is none. Leaves an old file as it is.
/// Throws RunError (kEnvironment).
void check_output(const std::string& path);

}  // namespace graphpipe::runtime
