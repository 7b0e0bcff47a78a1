#include "driver/launch/digest.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

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
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    return Diagnostic{.code = Code::kUnreadableFile,
                      .origin = ModelText(path),
                      .message = "the file cannot be opened",
                      .hint = "check that it exists and may be read"};
  }
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    hash.update(buffer.data(), count);
  if (std::ferror(file.get()) != 0) {
    return Diagnostic{.code = Code::kUnreadableFile,
                      .origin = ModelText(path),
                      .message = "reading the file failed",
                      .hint = "check the disk and that it is a regular file"};
  }
  return hash.hex();
}

}  // namespace graphpipe::driver
