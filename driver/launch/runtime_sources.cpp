#include "driver/launch/runtime_sources.h"

#include <algorithm>
#include <filesystem>

#include "driver/launch/build_folder.h"
#include "files/text_file.h"

namespace graphpipe::driver {

namespace fs = std::filesystem;

Result<std::vector<codegen::SourceFile>> runtime_sources() {
  const fs::path folder = fs::path(installed_runtime()) / "share/graphpipe/bundle";
  std::vector<codegen::SourceFile> sources;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error)) {
    if (!entry.is_regular_file()) continue;
    constexpr int64_t kMaxBytes = 1 << 20;
    GP_TRY(std::string text, files::read_file(entry.path().string(), kMaxBytes));
    sources.push_back(
        {.path = "runtime/" + fs::relative(entry.path(), folder).generic_string(), .text = std::move(text)});
  }
  if (sources.empty()) {
    return Diagnostic{.code = Code::kEnvironment,
                      .origin = ModelText(folder.string()),
                      .message = "the runtime's sources are not installed there",
                      .hint = kInstallRuntimeHint};
  }
  std::ranges::sort(sources, {}, &codegen::SourceFile::path);
  return sources;
}

}  // namespace graphpipe::driver
