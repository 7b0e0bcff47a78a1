#include "runtime/checkpoint/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/error.h"
#include "runtime/io/sha256.h"
#include "support/descriptor.h"
#include "support/mapped_file.h"

namespace graphpipe::runtime {
namespace {

/// Collects small pieces into larger writes: a state has hundreds of them.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!file_) cannot("create");
  }

  void write(std::span<const std::byte> bytes) {
    if (pending_.size() + bytes.size() <= kPending) {
      pending_.insert(pending_.end(), bytes.begin(), bytes.end());
      return;
    }
    write_all(pending_);
    pending_.clear();
    if (bytes.size() > kPending) write_all(bytes);
    else pending_.assign(bytes.begin(), bytes.end());
  }

  void flush() {
    write_all(pending_);
    if (::fsync(file_.get()) != 0) cannot("write");
  }

 private:
  static constexpr size_t kPending = size_t{1} << 20;

  [[noreturn]] void cannot(std::string_view what) const {
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(path_),
                              .message = text("cannot ", what, " the file: ", std::strerror(errno)),
                              .hint = "check the folder of --checkpoint, and the space on its disk"});
  }

  void write_all(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) cannot("write");
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

  std::string path_;
  Descriptor file_;
  std::vector<std::byte> pending_;
};

}  // namespace

wire::ManifestEntry write_shard_file(const std::string& folder, const std::string& name,
                                     const std::vector<NamedTensor>& tensors) {
  const std::string path = folder + "/" + name;
  ShardFile out(path);
  write_safetensors([&](std::span<const std::byte> bytes) { out.write(bytes); }, tensors);
  out.flush();
  const MappedFile file = value_or_throw(MappedFile::open(path));
  return {name, static_cast<int64_t>(file.bytes().size()), sha256_hex(file.bytes())};
}

}  // namespace graphpipe::runtime
