#pragma once
// What ended a program of ours, as one line of its standard output for the launcher, which tells users of it.

#include <optional>
#include <string>
#include <string_view>

#include "support/diagnostic.h"

namespace graphpipe::wire {

std::string problem_line(const Diagnostic& problem);
/// Nothing for any other line.
std::optional<Diagnostic> parse_problem_line(std::string_view line);

}  // namespace graphpipe::wire
