#include "runtime/io/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

// A pipe or a device, such as /dev/null, is written to; a file in its place would replace it.
bool is_written_in_place(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    errno = EISDIR;
    refuse();
  }
  if (!is_written_in_place(path)) temporary_ = text(path, ".part", static_cast<int64_t>(getpid()));
  file_ = std::fopen(temporary_.empty() ? path_.c_str() : temporary_.c_str(), "wbe");
  if (file_ == nullptr) refuse();
}

OutputFile::~OutputFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse();
}

void OutputFile::keep() {
  FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) refuse();
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) refuse();
  temporary_.clear();
}

void OutputFile::refuse() const {
  fail(Code::kEnvironment, text("cannot write ", quoted(ModelText(path_)), ": ", std::strerror(errno)),
       "check the folder and the space on its disk");
}

void check_output(const std::string& path) {
  if (path.empty()) return;
  // Opening a pipe would wait for its reader.
  if (is_written_in_place(path) && access(path.c_str(), W_OK) == 0) return;
  const OutputFile removed_at_once(path);
}

}  // namespace graphpipe::runtime
