#pragma once
// The pages of the manual, made from the table of verbs.

#include <span>
#include <string>
#include <string_view>

#include "driver/cli/commands.h"

namespace graphpipe::driver {

struct ExitMeaning {
  int code;
  std::string_view meaning;
};
/// What the exit codes of wire/exit_codes.h mean to a user.
std::span<const ExitMeaning> exit_meanings();

/// graphpipe(1), in the macros of man(7).
std::string overview_man_page();
/// graphpipe-VERB(1).
std::string verb_man_page(const CommandEntry& verb);
/// All verbs as one page of Markdown: docs/reference.md.
std::string markdown_reference();

}  // namespace graphpipe::driver
