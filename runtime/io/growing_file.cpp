#include "runtime/io/growing_file.h"

#include <fcntl.h>
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

}  // namespace

GrowingFile::GrowingFile(std::string path, Begin begin) : path_(std::move(path)) {
  const int how = begin == Begin::kAnew ? O_TRUNC : begin == Begin::kOnlyAnew ? O_EXCL : 0;
  file_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0666));
  if (!file_) fail_to_grow(path_, errno);
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
