#include "files/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/output_file.h"

namespace graphpipe::files {
namespace {

Diagnostic unreadable(const std::string& path, std::string_view why) {
  return {.code = Code::kUnreadableFile,
          .origin = ModelText(path),
          .message = text("cannot read the file: ", why),
          .hint = "check the path and its permissions"};
}

class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

Diagnostic too_large(const std::string& path, int64_t max_bytes) {
  return {.code = Code::kLimitExceeded,
          .origin = ModelText(path),
          .message = text("the file is larger than ", max_bytes, " bytes"),
          .hint = "check that this is the file you meant"};
}

}  // namespace

Result<FileStart> read_start(const std::string& path, int64_t max_bytes) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return unreadable(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return unreadable(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unreadable(path, "it is not a regular file");
  FileStart start{.bytes = {}, .file_size = status.st_size};
  std::string piece(size_t{1} << 16, '\0');
  while (static_cast<int64_t>(start.bytes.size()) < max_bytes) {
    const auto wanted = std::min(piece.size(), static_cast<size_t>(max_bytes) - start.bytes.size());
    const ssize_t count = ::read(file.number(), piece.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable(path, std::strerror(errno));
    if (count == 0) break;
    start.bytes.append(piece, 0, static_cast<size_t>(count));
  }
  return start;
}

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  // One byte more than allowed shows that the file is larger, whatever size it claims.
  Result<FileStart> start = read_start(path, max_bytes + 1);
  if (!start.ok()) return start.problems();
  if (static_cast<int64_t>(start->bytes.size()) > max_bytes) return too_large(path, max_bytes);
  return std::move(start->bytes);
}

Status write_file(const std::string& path, std::string_view contents) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok()) return file.problems();
  GP_TRY_VOID(file->write(contents));
  return file->commit();
}

}  // namespace graphpipe::files
