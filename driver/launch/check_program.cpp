#include "driver/launch/check_program.h"

#include <unistd.h>

#include "driver/launch/digest.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kDigestLength = 64;
// A digest, two blanks and the program's name.
constexpr int64_t kMaxDigestFile = 4096;

}  // namespace

Status check_program(const std::string& path) {
  if (access(path.c_str(), X_OK) == 0) return Ok{};
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(path),
                    .message = "the program is missing or cannot be run",
                    .hint = "run `graphpipe build` on the folder first"};
}

Status check_built_program(const std::string& path) {
  GP_TRY_VOID(check_program(path));
  const Result<std::string> recorded = files::read_file(path + ".sha256", kMaxDigestFile);
  if (!recorded) {
    return Diagnostic{.code = Code::kEnvironment,
                      .origin = ModelText(path),
                      .message = "the build has not recorded this program's digest, so it is not known whose it is",
                      .hint = "run `graphpipe build` on the folder again"};
  }
  GP_TRY(const std::string digest, sha256_of_file(path));
  if (recorded->substr(0, kDigestLength) == digest) return Ok{};
  return Diagnostic{
      .code = Code::kMalformedFile,
      .origin = ModelText(path),
      .message = "the program is not the one that was built here: its digest differs from the recorded one",
      .hint = "find out who has changed it; `graphpipe build` makes it again once it is removed"};
}

}  // namespace graphpipe::driver
