#include "driver/launch/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "support/descriptor.h"

namespace graphpipe::driver {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    GP_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(const void* data, size_t size) { GP_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1); }
  std::string hex() {
    std::array<unsigned char, 32> digest{};
    GP_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    std::string out;
    for (unsigned char byte : digest) {
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_of_text(std::string_view text) {
  Sha256 hash;
  hash.update(text.data(), text.size());
  return hash.hex();
}

Result<std::string> sha256_of_file(const std::string& path) {
  const auto unreadable = [&](std::string message, std::string hint) {
    return Diagnostic{.code = Code::kUnreadableFile,
                      .origin = ModelText(path),
                      .message = std::move(message),
                      .hint = std::move(hint)};
  };
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return unreadable("the file cannot be opened", "check that it exists and may be read");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return unreadable("it is not a regular file", "name a file");
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable("reading the file failed", "check the disk");
    if (count == 0) return hash.hex();
    hash.update(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace graphpipe::driver
