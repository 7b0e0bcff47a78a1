#pragma once
// The pages of the manual, made from the table of verbs.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/commands.h"
#include "driver/cli/help_text.h"

namespace graphpipe::driver {

struct ExitMeaning {
  int code;
  std::string_view meaning;
};
/// What the exit codes of wire/exit_codes.h mean to a user.
std::span<const ExitMeaning> exit_meanings();

/// The first sentence of every overview.
inline constexpr std::string_view kWhatItIs =
    "GraphPipe turns an ONNX model into a pipeline-parallel training plan and the programs that run it.";

/// A verb's flags and arguments, with their defaults.
std::vector<ShownFlag> flags_of(const CommandEntry& verb);

/// graphpipe(1), in the macros of man(7).
std::string overview_man_page();
/// graphpipe-VERB(1).
std::string verb_man_page(const CommandEntry& verb);
/// All verbs as one page of Markdown: docs/reference.md.
std::string markdown_reference();

}  // namespace graphpipe::driver
