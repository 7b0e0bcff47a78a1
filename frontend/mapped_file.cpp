#include "frontend/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace graphpipe::frontend {
namespace {

Diagnostic unreadable(const std::string& path, const std::string& why) {
  return Diagnostic{.code = Code::kUnreadableFile,
                    .severity = Severity::kError,
                    .origin = ModelText(path),
                    .message = text("the model file cannot be read: ", why),
                    .hint = "give the path of a readable .onnx file"};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, int64_t limit) {
  // Without O_NONBLOCK opening a named pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable(path, std::strerror(errno));
  struct stat info {};
  const bool known = fstat(file, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    close(file);
    return unreadable(path, known && S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file");
  }
  if (info.st_size > limit) {
    close(file);
    return Diagnostic{.code = Code::kLimitExceeded,
                      .severity = Severity::kError,
                      .origin = ModelText(path),
                      .message = text("the file has ", info.st_size, " bytes, the limit is ", limit),
                      .hint = "store the weights as external data"};
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int reason = errno;
  close(file);
  if (data == MAP_FAILED) return unreadable(path, std::strerror(reason));
  return MappedFile(static_cast<const char*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

}  // namespace graphpipe::frontend
