#include "driver/launch/check_program.h"

#include <unistd.h>

#include "driver/launch/build_folder.h"
#include "driver/launch/digest.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kDigestLength = 64;
// A digest, two blanks and the program's name.
constexpr int64_t kMaxDigestFile = 4096;

bool can_be_run(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

}  // namespace

Result<std::string> runtime_program(const std::string& runtime, const std::string& name) {
  const std::string path = runtime + "/bin/" + name;
  // Without a runtime the path would be one of the system's folder, where a program of this name is not ours.
  if (!runtime.empty() && can_be_run(path)) return path;
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(runtime.empty() ? name : path),
                    .message = runtime.empty() ? "no installed runtime was found, and the program is part of it"
                                               : "the program is missing or cannot be run: it is part of the runtime, "
                                                 "which is not installed there, or not as a whole",
                    .hint = kInstallRuntimeHint};
}

Status check_built_program(const std::string& path) {
  if (!can_be_run(path)) {
    return Diagnostic{.code = Code::kEnvironment,
                      .origin = ModelText(path),
                      .message = "the program is missing or cannot be run",
                      .hint = "run `graphpipe build` on the folder first"};
  }
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
