#include "runtime/launch/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "support/descriptor.h"
#include "wire/secret.h"

namespace graphpipe::runtime {
namespace {

constexpr size_t kHmacBlock = 64;
constexpr size_t kMaxSecretFile = 4096;
constexpr const char* kMakeOne = "make a file with `(umask 077; openssl rand -hex 32 > FILE)`";

[[noreturn]] void refuse_secret_file(const std::string& path, const std::string& why) {
  fail(Code::kUsage, text(wire::kSecretFileVariable, " names ", quoted(ModelText(path)), ", ", why),
       text(kMakeOne, " on each host"));
}

std::string read_secret_file(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0)
    refuse_secret_file(path, text("which cannot be read: ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) refuse_secret_file(path, "which is not a regular file");
  if (status.st_uid != geteuid()) refuse_secret_file(path, "which belongs to another user");
  if ((status.st_mode & 077) != 0)
    refuse_secret_file(path, "which other users may open; its mode must be 0600 (chmod 600)");
  std::string words(kMaxSecretFile + 1, '\0');
  const ssize_t count = read(file.get(), words.data(), words.size());
  if (count < 0) refuse_secret_file(path, text("which cannot be read: ", std::strerror(errno)));
  if (static_cast<size_t>(count) > kMaxSecretFile) refuse_secret_file(path, "which is longer than any secret");
  words.resize(static_cast<size_t>(count));
  return words;
}

}  // namespace

Sha256Digest hmac_sha256(const Key& key, std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<std::byte> inner(kHmacBlock), outer(kHmacBlock);
  for (size_t i = 0; i < kHmacBlock; ++i) {
    const std::byte of_key = i < key.size() ? key[i] : std::byte{0};
    inner[i] = of_key ^ std::byte{0x36};
    outer[i] = of_key ^ std::byte{0x5c};
  }
  for (std::span<const std::byte> part : parts) inner.insert(inner.end(), part.begin(), part.end());
  const Sha256Digest digest = sha256(inner);
  outer.insert(outer.end(), digest.begin(), digest.end());
  return sha256(outer);
}

bool equal_secretly(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

void fill_random(std::span<std::byte> bytes) {
  // Up to 256 bytes are returned in full, or not at all.
  if (bytes.size() > 256 || getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail(Code::kEnvironment, "the system gives no random numbers", "run on a Linux with getrandom(2)");
}

Key key_of(std::string_view secret) { return sha256(std::as_bytes(std::span(secret))); }

Key find_secret() {
  // An empty variable counts as unset.
  const auto variable = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value == nullptr || *value == '\0' ? nullptr : value;
  };
  std::string secret;
  const char* word = variable(wire::kSecretVariable);
  const char* path = variable(wire::kSecretFileVariable);
  if (word != nullptr) secret = word;
  else if (path != nullptr) secret = read_secret_file(path);
  else
    fail(Code::kUsage, "the ranks have no secret by which they could know each other",
         text("start them with `graphpipe run`, or ", kMakeOne, " and export ", wire::kSecretFileVariable,
              "=FILE for all ranks"));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < wire::kMinSecretLength)
    fail(Code::kUsage,
         text("the secret of ", word != nullptr ? wire::kSecretVariable : wire::kSecretFileVariable, " has ",
              secret.size(), " characters, and needs ", wire::kMinSecretLength),
         kMakeOne);
  unsetenv(wire::kSecretVariable);
  return key_of(secret);
}

}  // namespace graphpipe::runtime
