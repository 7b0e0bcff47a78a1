#include "driver/launch/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace graphpipe::driver {

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const auto cannot = [&](std::string_view why, std::string_view hint) {
    return Diagnostic{.code = Code::kEnvironment,
                      .origin = ModelText(folder),
                      .message = text("the folder cannot be written: ", why),
                      .hint = std::string(hint)};
  };
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (error) return cannot(error.message(), "check the path and its permissions");
  FolderLock lock(made ? folder : "", ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.descriptor_ < 0) return cannot(std::strerror(errno), "check the path and its permissions");
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) == 0) return lock;
  // Some network file systems cannot lock; there it is up to the user not to run two compilations in one folder.
  if (errno != EWOULDBLOCK) return lock;
  return cannot("another graphpipe is writing into it", "wait until it has ended, or choose another folder");
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : made_(std::exchange(other.made_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (!made_.empty()) ::rmdir(made_.c_str());  // fails, as it should, where the folder holds something
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace graphpipe::driver
