#include "driver/launch/program_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace graphpipe::driver {

Result<ProgramFolder> ProgramFolder::make(const std::string& kept, const std::string& name) {
  if (!kept.empty()) {
    GP_TRY(FolderLock lock, FolderLock::take(kept));
    ProgramFolder folder(kept, false);
    folder.lock_.emplace(std::move(lock));
    return folder;
  }
  std::error_code error;
  std::string pattern = (std::filesystem::temp_directory_path(error) / (name + "-XXXXXX")).string();
  if (!error && mkdtemp(pattern.data()) != nullptr) return ProgramFolder(pattern, true);
  return Diagnostic{.code = Code::kEnvironment,
                    .message = "no temporary folder can be made",
                    .hint = "set TMPDIR to a folder that may be written"};
}

Result<ProgramFolder> ProgramFolder::make_within(const std::string& folder, const std::string& name) {
  const std::string kept = folder + "/" + name;
  std::error_code error;
  const std::string& parent = std::filesystem::exists(kept, error) ? kept : folder;
  return make(::eaccess(parent.c_str(), W_OK) == 0 ? kept : "", "graphpipe-" + name);
}

ProgramFolder::ProgramFolder(ProgramFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, false)),
      lock_(std::move(other.lock_)) {}

ProgramFolder::~ProgramFolder() {
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace graphpipe::driver
