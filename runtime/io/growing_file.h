#pragma once
// A file that others follow while a run writes it, in place: bytes are in it when append() returns.

#include <string>
#include <string_view>

#include "support/descriptor.h"

namespace graphpipe::runtime {

class GrowingFile {
 public:
  enum class Begin {
    kAnew,      // an old file's bytes go
    kAtEnd,     // behind the bytes of an old file
    kOnlyAnew,  // none may stand there
  };
  /// Throws RunError (kEnvironment) here and below.
  GrowingFile(std::string path, Begin begin);
  /// All of it, where the disk has room.
  void append(std::string_view bytes) const;

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace graphpipe::runtime
