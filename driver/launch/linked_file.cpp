#include "driver/launch/linked_file.h"

#include <filesystem>

#include "wire/manifest.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

Diagnostic cannot_link(const fs::path& link, const std::error_code& error) {
  return {.code = Code::kEnvironment,
          .origin = ModelText(link.string()),
          .message = "the link to the file that the plan was made from cannot be made: " + error.message(),
          .hint = "choose a folder on a file system with symbolic links that may be written"};
}

}  // namespace

Status check_link(const std::string& folder, const std::string& name, const std::string& target) {
  const fs::path link = fs::path(folder) / name;
  std::error_code error;
  const fs::file_status there = fs::symlink_status(link, error);
  if (fs::is_symlink(there) || !fs::exists(there) || fs::equivalent(link, fs::absolute(target), error)) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(link.string()),
                    .message = "a file stands where the folder links to what its plan was made from",
                    .hint = "move the file away, or choose another folder"};
}

Status link_file(const std::string& folder, const std::string& name, const std::string& target) {
  GP_TRY_VOID(check_link(folder, name, target));
  const fs::path link = fs::path(folder) / name;
  const fs::path wanted = fs::absolute(target);
  std::error_code error;
  const fs::file_status there = fs::symlink_status(link, error);
  if (fs::is_symlink(there)) {
    if (fs::read_symlink(link, error) == wanted) return Ok{};
    fs::remove(link, error);
    if (error) return cannot_link(link, error);
  } else if (fs::exists(there)) {
    return Ok{};  // the target itself
  }
  fs::create_symlink(wanted, link, error);
  if (error) return cannot_link(link, error);
  return Ok{};
}

std::string linked_file(const std::string& folder, const std::string& path) {
  const fs::path file = fs::path(folder) / path;
  if (path != wire::kModelLink && path != wire::kProfileLink) return file.string();
  std::error_code error;
  const fs::path target = fs::read_symlink(file, error);
  return error ? file.string() : (file.parent_path() / target).string();
}

}  // namespace graphpipe::driver
