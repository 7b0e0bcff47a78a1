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

}  // namespace graphpipe::codegen
