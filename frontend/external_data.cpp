#include "frontend/external_data.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "support/descriptor.h"

namespace graphpipe::frontend {
namespace {

constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

/// Fallback without openat2: opens each component separately, rejecting links. Needs: no ".." component, not absolute.
Descriptor open_by_components(int folder, const std::string& location) {
  Descriptor at(dup(folder));
  size_t start = 0;
  while (at) {
    const size_t slash = location.find('/', start);
    const std::string part = location.substr(start, slash - start);
    const bool last = slash == std::string::npos;
    if (!part.empty() && part != ".")
      at = Descriptor(openat(at.get(), part.c_str(), kFlags | O_NOFOLLOW | (last ? 0 : O_DIRECTORY)));
    if (last) break;
    start = slash + 1;
  }
  return at;
}

Descriptor open_beneath(int folder, const std::string& location) {
  open_how how{};
  how.flags = kFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long number = syscall(SYS_openat2, folder, location.c_str(), &how, sizeof(how));
  if (number >= 0) return Descriptor(static_cast<int>(number));
  if (errno == ENOSYS || errno == EPERM) return open_by_components(folder, location);
  return Descriptor(-1);
}

std::string real_path(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  std::string result = resolved == nullptr ? "" : resolved;
  std::free(resolved);
  return result;
}

/// The real location of an open file, whatever links led to it.
std::string path_of(const Descriptor& file) { return real_path(text("/proc/self/fd/", file.get())); }

bool is_inside(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.size() > folder.size() && path.compare(0, folder.size(), folder) == 0 &&
         (folder == "/" || path[folder.size()] == '/');
}

bool has_parent_step(const std::string& location) { return text("/", location, "/").find("/../") != std::string::npos; }

/// Digits only: no sign, space, or leading "0x".
std::optional<int64_t> strict_decimal(const std::string& digits) {
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  int64_t value = 0;
  for (char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + (digit - '0');
  }
  return value;
}

}  // namespace

Diagnostic tensor_problem(Code code, const ModelText& tensor, std::string message, std::string hint) {
  return {.code = code, .origin = tensor, .message = std::move(message), .hint = std::move(hint)};
}

ExternalData::ExternalData(const std::string& model_path, std::string trusted_root)
    : trusted_root_(trusted_root.empty() ? "" : real_path(trusted_root)) {
  const size_t slash = model_path.rfind('/');
  folder_ = slash == std::string::npos ? "." : model_path.substr(0, slash + 1);
}

Result<int> ExternalData::open(const std::string& location, const ModelText& tensor) {
  const std::string name = quoted(ModelText(location));
  const char* const kHint = "keep the data file beside the model, or name the store that holds it with --trusted-root";
  if (location.empty() || location.size() > PATH_MAX || location.find('\0') != std::string::npos)
    return tensor_problem(Code::kUnsafePath, tensor, text("its external file name ", name, " is no file name"), kHint);
  if (location.front() == '/' || has_parent_step(location))
    return tensor_problem(Code::kUnsafePath, tensor, text("its external file ", name, " leaves the model's folder"),
                          kHint);
  const Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return tensor_problem(Code::kUnreadableFile, tensor, "the model's folder cannot be opened", kHint);
  Descriptor file = open_beneath(folder.get(), location);
  if (!file && !trusted_root_.empty()) {
    Descriptor linked(openat(folder.get(), location.c_str(), kFlags));
    if (linked && is_inside(path_of(linked), trusted_root_)) file = std::move(linked);
  }
  if (!file) {
    struct stat info {};
    if (fstatat(folder.get(), location.c_str(), &info, 0) != 0)
      return tensor_problem(Code::kUnreadableFile, tensor, text("its external file ", name, ": ", std::strerror(errno)),
                            "fetch the data file and keep it beside the model");
    return tensor_problem(Code::kUnsafePath, tensor,
                          text("its external file ", name, " leads out of the model's folder by a link"), kHint);
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return tensor_problem(Code::kUnsafePath, tensor, text("its external file ", name, " is not a regular file"), kHint);
  GP_TRY_VOID(check_hard_links(info, location, tensor));
  return file.release();
}

Status ExternalData::check_hard_links(const struct stat& info, const std::string& location, const ModelText& tensor) {
  if (info.st_nlink <= 1 || opened_.count(location) > 0) return Ok{};
  Diagnostic note = tensor_problem(Code::kUnsafePath, tensor,
                                   text("its external file ", quoted(ModelText(location)), " has further hard links"),
                                   "copy the file if others can write to it");
  if (info.st_uid != geteuid() && (info.st_mode & S_IROTH) == 0) return note;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return Ok{};
  note.severity = Severity::kWarning;
  notes_.push_back(std::move(note));
  return Ok{};
}

Result<std::string> ExternalData::read(const ExternalSlot& slot, const ir::FileRange& range, const ModelText& tensor) {
  GP_TRY(const int number, open(slot.location, tensor));
  const Descriptor file(number);
  std::string bytes(static_cast<size_t>(range.length), '\0');
  if (pread(file.get(), bytes.data(), bytes.size(), range.offset) != static_cast<ssize_t>(bytes.size()))
    return tensor_problem(Code::kUnreadableFile, tensor, "its external data cannot be read",
                          "fetch the data file again");
  return bytes;
}

Result<ir::FileRange> ExternalData::locate(const ExternalSlot& slot, int64_t needed, const ModelText& tensor) {
  auto found = opened_.find(slot.location);
  if (found == opened_.end()) {
    GP_TRY(const int number, open(slot.location, tensor));
    const Descriptor opened(number);
    struct stat info {};
    GP_CHECK(fstat(number, &info) == 0);
    const std::string path = folder_ == "." ? slot.location : text(folder_, slot.location);
    files_.push_back(path);
    found = opened_.emplace(slot.location, File{path, info.st_size, {info.st_dev, info.st_ino}}).first;
  }
  const File& file = found->second;
  const std::optional<int64_t> offset = slot.has_offset ? strict_decimal(slot.offset) : 0;
  const std::optional<int64_t> length = slot.has_length ? strict_decimal(slot.length) : needed;
  if (!offset || !length)
    return tensor_problem(Code::kBadModel, tensor, "the offset or length of its external data is no decimal number",
                          "export the model again");
  if (*length != needed)
    return tensor_problem(Code::kBadModel, tensor,
                          text("its external data have ", *length, " bytes, its type and dims need ", needed),
                          "export the model again");
  if (*offset > file.size || *length > file.size - *offset)
    return tensor_problem(Code::kBadModel, tensor,
                          text("its external data end at byte ", *offset, " + ", *length, " of a file of ", file.size),
                          "fetch the data file again");
  if (*length == 0) return ir::FileRange{file.path, *offset, 0};
  Ranges& ranges = ranges_.try_emplace(file.identity, Ranges{file.path, {}}).first->second;
  const auto known = ranges.lengths.emplace(*offset, *length);
  if (!known.second && known.first->second != *length) overlapping_.push_back(tensor.raw());
  return ir::FileRange{file.path, *offset, *length};
}

Result<int> open_weight_file(const std::string& path, const std::string& model_path, const std::string& trusted_root) {
  if (path != model_path) {
    const size_t slash = model_path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : model_path.substr(0, slash + 1);
    if (path.compare(0, folder.size(), folder) != 0)
      return tensor_problem(Code::kUnsafePath, ModelText(path), "the file is not beneath the model's folder",
                            "make the plan again");
    return ExternalData(model_path, trusted_root).open(path.substr(folder.size()), ModelText(path));
  }
  Descriptor file(::open(path.c_str(), kFlags));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return tensor_problem(Code::kUnreadableFile, ModelText(path),
                          "the model file cannot be opened, or is no regular file",
                          "check that it is where the plan was made");
  return file.release();
}

Status ExternalData::check_overlaps() const {
  Diagnostics problems;
  for (const std::string& name : overlapping_)
    problems.push_back(tensor_problem(Code::kBadModel, ModelText(name), "its external data overlap another tensor's",
                                      "export the model again"));
  for (const auto& [identity, ranges] : ranges_) {
    int64_t end = 0;
    for (const auto& [offset, length] : ranges.lengths) {
      if (offset < end)
        problems.push_back(tensor_problem(Code::kBadModel, ModelText(ranges.path),
                                          text("tensors overlap at byte ", offset, " of the external data"),
                                          "export the model again"));
      end = std::max(end, offset + length);
    }
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::frontend
