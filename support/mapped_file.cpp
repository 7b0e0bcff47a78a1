#include "support/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace graphpipe {
namespace {

Diagnostic unreadable(const std::string& path, const std::string& why) {
  return Diagnostic{.code = Code::kUnreadableFile,
                    .origin = ModelText(path),
                    .message = text("the file cannot be read: ", why),
                    .hint = "check the path and its permissions"};
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
                      .origin = ModelText(path),
                      .message = graphpipe::text("the file has ", info.st_size, " bytes, the limit is ", limit),
                      .hint = "store the weights as external data"};
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int reason = errno;
  close(file);
  if (data == MAP_FAILED) return unreadable(path, std::strerror(reason));
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace graphpipe
