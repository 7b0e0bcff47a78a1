#pragma once
// A generated file as a value: codegen/ never touches the disk.

#include <string>

namespace graphpipe::codegen {

struct SourceFile {
  /// Relative to the output folder, '/' between parts, made of ids and fixed words only: it cannot leave the folder.
  std::string path;
  std::string text;
  bool operator==(const SourceFile&) const = default;
};

/// The comment that opens a file, and ends with its line. A file that is the same for many plans does not name its
/// plan, so that it, and what was compiled from it, stays the same.
struct FirstLines {
  std::string of_model;
  std::string of_plan;
};

}  // namespace graphpipe::codegen
