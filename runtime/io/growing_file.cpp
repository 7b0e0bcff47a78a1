#include "runtime/io/growing_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

[[noreturn]] void fail_to_grow(const std::string& path, int error) {
  throw RunError(Diagnostic{.code = Code::kEnvironment,
                            .origin = ModelText(path),
                            .message = text("this file cannot be written: ", std::strerror(error)),
                            .hint = "check the disk and the rights on the folder"});
}

// Of regular files alone: /dev/null is for all. Some file systems have no locks, and go without.
void take_lock(const std::string& path, int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(path),
                              .message = "another run writes this file",
                              .hint = "name another file, or wait until that run has ended"});
}

}  // namespace

GrowingFile::GrowingFile(std::string path, Begin begin) : path_(std::move(path)) {
  const int how = begin == Begin::kOnlyAnew ? O_EXCL : 0;
  file_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0666));
  if (!file_) fail_to_grow(path_, errno);
  take_lock(path_, file_.get());
  // Not when it is opened: it may have been another's. What is no regular file has nothing to lose.
  if (begin == Begin::kAnew && ftruncate(file_.get(), 0) != 0 && errno != EINVAL) fail_to_grow(path_, errno);
}

void GrowingFile::append(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to_grow(path_, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace graphpipe::runtime
