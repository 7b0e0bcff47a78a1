#pragma once
// How a generated folder knows files outside it: by a symbolic link. The folder's own files then hold no path, and are
// the same wherever those files and the folder lie.

#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// Whether link_file may make the link: no file stands in its place but the target itself. Errors: kUsage.
Status check_link(const std::string& folder, const std::string& name, const std::string& target);
/// Makes `folder`/`name` lead to `target`, in place of a link that stood there. Errors: those of check_link;
/// kEnvironment.
Status link_file(const std::string& folder, const std::string& name, const std::string& target);

/// What a plan file in `folder` means by `path`: an absolute path, or one relative to the folder, and where a link of
/// link_file stands there, what it leads to. The links of others are left to those who open them.
std::string linked_file(const std::string& folder, const std::string& path);

}  // namespace graphpipe::driver
