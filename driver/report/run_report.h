#pragma once
// Reads back what a training run reports with --json (wire/result_lines.h).

#include <string_view>
#include <vector>

#include "support/result.h"

namespace graphpipe::driver {

/// The numbers of a field that holds an array of numbers, such as "losses"; null reads as NaN.
/// Errors (kPeerFailed): the field is missing or holds something else.
Result<std::vector<double>> report_numbers(std::string_view report, std::string_view field);

}  // namespace graphpipe::driver
