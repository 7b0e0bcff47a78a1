#pragma once
// A file that others follow while a run writes it, in place: the bytes are in the file when append() returns. One run at
// a time writes it.

#include <string>
#include <string_view>

#include "support/descriptor.h"

namespace graphpipe::runtime {

class GrowingFile {
 public:
  enum class Begin {
    kAnew,      // truncates an existing file
    kAtEnd,     // appends to an existing file
    kOnlyAnew,  // the file must not exist
  };
  /// Throws RunError (kEnvironment), as append() does; also where another GrowingFile has the file.
  GrowingFile(std::string path, Begin begin);
  /// Appends all bytes, unless the disk is full.
  void append(std::string_view bytes) const;

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace graphpipe::runtime
