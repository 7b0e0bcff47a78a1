#include "support/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

namespace graphpipe {
namespace {

namespace fs = std::filesystem;

Diagnostic cannot(const std::string& path, std::string_view what, std::string_view why) {
  return {.code = Code::kEnvironment,
          .origin = ModelText(path),
          .message = text("cannot ", what, " the file: ", why),
          .hint = "check the folder, its permissions, the space on its disk and the limit of file sizes (ulimit -f)"};
}

struct Place {
  /// The file to replace; links are resolved.
  std::string target;
  bool in_place = false;
  /// Permissions of the file that stands there; absent where there is none.
  std::optional<mode_t> mode;
};

// The names under which a process finds its own open files: they are those files, whatever kind they are.
bool is_open_file(const std::string& path) {
  return path.starts_with("/dev/std") || path.starts_with("/dev/fd/") || path.starts_with("/proc/");
}

// The descriptor that such a name stands for; none for other names. Opening the name again would begin at the start of
// a file that a shell has opened to append to.
std::optional<int> descriptor_named(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    const char* end = path.data() + path.size();
    if (path.starts_with(folder) && std::from_chars(path.data() + folder.size(), end, number).ptr == end) return number;
  }
  return std::nullopt;
}

int open_in_place(const std::string& path) {
  const std::optional<int> named = descriptor_named(path);
  if (!named) return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  std::cout.flush();
  return ::fcntl(*named, F_DUPFD_CLOEXEC, 0);
}

Result<Place> place_of(const std::string& path) {
  Place place{.target = path};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return cannot(path, "create", std::strerror(errno));
    struct stat link {};
    if (::lstat(path.c_str(), &link) == 0) return cannot(path, "create", "a symbolic link that leads nowhere is there");
    return place;
  }
  if (S_ISDIR(status.st_mode)) return cannot(path, "create", std::strerror(EISDIR));
  if (S_ISBLK(status.st_mode)) return cannot(path, "write", "it is a disk");
  if (S_ISSOCK(status.st_mode)) return cannot(path, "write", "it is a socket");
  place.in_place = !S_ISREG(status.st_mode) || is_open_file(path);
  place.mode = status.st_mode & 0777;
  if (place.in_place) return place;
  // A new file could take its name all the same, but who made it read-only wants to keep it.
  if ((status.st_mode & 0222) == 0 || ::access(path.c_str(), W_OK) != 0)
    return cannot(path, "replace", "it is read-only");
  std::error_code error;
  place.target = fs::canonical(path, error).string();
  if (error) return cannot(path, "create", error.message());
  return place;
}

// mkostemp gives a file to its owner alone; what we write is as readable as any other file.
mode_t usual_mode() {
  // umask() tells it by changing it, for all threads.
  mode_t mask = 022;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Umask:")) mask = static_cast<mode_t>(std::strtoul(line.c_str() + 6, nullptr, 8));
  return 0666 & ~mask;
}

// Some file systems have no permissions to set.
bool set_mode(int descriptor, mode_t mode) {
  return ::fchmod(descriptor, mode) == 0 || errno == EPERM || errno == ENOTSUP || errno == ENOSYS;
}

void flush_folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Not every file system can flush a folder; the file itself is safe by now.
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

}  // namespace

Diagnostic OutputFile::problem(std::string_view what) const { return cannot(path_, what, std::strerror(errno)); }

Result<OutputFile> OutputFile::create(const std::string& path) {
  GP_TRY(const Place place, place_of(path));
  if (place.in_place) {
    OutputFile file(path, path, "", open_in_place(path));
    if (file.descriptor_ < 0) return file.problem("write");
    return file;
  }
  std::string temporary = place.target + ".XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  OutputFile file(path, place.target, std::move(temporary), descriptor);
  if (descriptor < 0 || !set_mode(descriptor, place.mode ? *place.mode : usual_mode())) return file.problem("create");
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return problem("write");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return Ok{};
}

Status OutputFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) return problem("write");
    return Ok{};
  }
  if (::fsync(descriptor_) != 0) return problem("write");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return problem("rename");
  ::close(std::exchange(descriptor_, -1));
  flush_folder_of(target_);
  return Ok{};
}

Status check_output_path(const std::string& path) {
  if (path.empty()) return Ok{};
  GP_TRY(const Place place, place_of(path));
  if (place.in_place) {
    if (::access(path.c_str(), W_OK) != 0) return cannot(path, "write", std::strerror(errno));
    return Ok{};
  }
  GP_TRY(const OutputFile removed_at_once, OutputFile::create(path));
  return Ok{};
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  std::error_code first, second;
  const fs::path left = fs::weakly_canonical(fs::absolute(a), first);
  const fs::path right = fs::weakly_canonical(fs::absolute(b), second);
  return first || second ? a == b : left == right;
}

}  // namespace graphpipe
