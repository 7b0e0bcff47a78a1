#pragma once
// One process at a time writes or builds a generated folder: two would mix their files and their object code.

#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// Held until it goes out of scope or the process ends, however it ends. It is the folder itself that is locked, so no
/// file tells of it. Readers, and runs of the finished programs, do not ask.
class FolderLock {
 public:
  /// Makes the folder where there is none. Errors: kEnvironment, also where another process holds it.
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  /// Removes a folder that take() has made if nothing was written into it.
  ~FolderLock();

 private:
  FolderLock(std::string made, int descriptor) : made_(std::move(made)), descriptor_(descriptor) {}

  std::string made_;
  int descriptor_ = -1;
};

}  // namespace graphpipe::driver
